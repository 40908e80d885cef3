"""Ends this process when the one does for which it works."""

import os
import select
import signal
import threading

_POLL_MS = 1000


def end_with(parent: int, connection: int | None = None) -> None:
    """Has this process get SIGTERM when its parent has ended, or has given up its end of ``connection``;
    either may come late, when a child of the parent holds a copy of that end.
    """
    poll = select.poll()
    if connection is not None:
        poll.register(connection, select.POLLIN)
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
        timeout = None
    except (OSError, AttributeError):  # gone already, or an old kernel
        timeout = _POLL_MS

    def watch() -> None:
        while os.getppid() == parent and not poll.poll(timeout):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="horovod-parent", daemon=True).start()
