"""The child of horovod.run: a horovodrun that also serves the function to the ranks and keeps what they send.

It is started with descriptors from its caller: a socket, by which it tells how the job ended and sees the
caller's end; a file with the call; and an empty file for what the ranks send.
"""

import contextlib
import io
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from .. import launch
from .arguments import by_arguments
from .call import Call

_USAGE_STATUS = 2
_POLL_MS = 1000


def main() -> None:
    """``sys.argv``: the descriptors, the caller's process, and the words of a command line of horovodrun."""
    numbers, parent, *words = sys.argv[1:]
    descriptors = [int(number) for number in numbers.split(",")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    caller, function, results = descriptors
    _end_with(caller, int(parent))
    call = Call(function, results)
    status = _run(words, call)
    connection = socket.socket(fileno=caller)
    with contextlib.suppress(OSError):  # the caller has gone
        connection.sendall(call.finish().encoded())
    connection.detach()  # the process closes it: its end must not pass for the caller's
    sys.exit(status)


def _run(words: Sequence[str], call: Call) -> int:
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            arguments = launch.parse_args(words)
    except SystemExit:
        call.outcome.refusal = told.getvalue()
        return _USAGE_STATUS
    sys.stderr.write(told.getvalue())
    arguments.warnings = [by_arguments(warning) for warning in arguments.warnings]
    call.outcome.size = arguments.num_proc
    return launch.start_job(arguments, call)


def _end_with(connection: int, parent: int) -> None:
    """Has this process end, and its ranks with it, when the caller's process does or gives up its end of the
    connection; either may come late, when a child of the caller holds a copy of that end.
    """
    poll = select.poll()
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

    threading.Thread(target=watch, name="horovod-caller", daemon=True).start()
