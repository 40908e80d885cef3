"""The child of horovod.run: a horovodrun that also serves the function to the ranks and keeps what they send.

It is started with descriptors from its caller: a socket, by which it tells how the job ended and sees the
caller's end; a file with the call; and an empty file for what the ranks send.
"""

import contextlib
import io
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from horovod.bootstrap.store.server import StoreServer

from .. import launch
from ..arbitration import Cause
from . import transfer

_USAGE_STATUS = 2
_POLL_MS = 1000


@dataclass
class Outcome:
    """How the job ended, as the caller is told. ``sent``: by rank, in the order in which they began, the
    kind, offset and size of what each has sent in full.
    """

    refusal: str = ""  # why the options cannot be
    size: int = 0
    culprit: int | None = None  # the rank whose failure ended the job
    report: str = ""  # on that failure
    sent: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """For ``decoded``."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decoded(data: bytes) -> "Outcome":
        """No bytes: those of a launcher that could not say anything."""
        fields: dict[str, Any] = json.loads(data) if data else {}
        sent = {int(rank): tuple(region) for rank, region in fields.pop("sent", {}).items()}
        return Outcome(**fields, sent=sent)


class CallService:
    """What a job has besides, when it runs a function: the launcher asks for both."""

    def __init__(self, call: int, results: int) -> None:
        self.outcome = Outcome()
        self._call = transfer.content(call)
        self._results = transfer.Results(results)

    def attach(self, store: StoreServer) -> None:
        """Before the store of the job is started."""
        transfer.publish(store, self._call)
        self._results.attach(store)

    def on_failure(self, cause: Cause, report: bytes) -> None:
        """The caller raises what others print."""
        self.outcome.culprit = cause.rank
        self.outcome.report = report.decode(errors="backslashreplace")

    def finish(self) -> Outcome:
        """After the job."""
        for rank, region in self._results.complete().items():
            self.outcome.sent[rank] = (region.kind, region.offset, region.size)
        return self.outcome


def main() -> None:
    """``sys.argv``: the descriptors, the caller's process, and the words of a command line of horovodrun."""
    numbers, parent, *words = sys.argv[1:]
    descriptors = [int(number) for number in numbers.split(",")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    caller, call, results = descriptors
    _end_with(caller, int(parent))
    service = CallService(call, results)
    status = _run(words, service)
    connection = socket.socket(fileno=caller)
    with contextlib.suppress(OSError):  # the caller has gone
        connection.sendall(service.finish().encoded())
    connection.detach()  # the process closes it: its end must not pass for the caller's
    sys.exit(status)


def _run(words: Sequence[str], service: CallService) -> int:
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            arguments = launch.parse_args(words)
    except SystemExit:
        service.outcome.refusal = told.getvalue()
        return _USAGE_STATUS
    sys.stderr.write(told.getvalue())
    service.outcome.size = arguments.num_proc
    return launch.start_job(arguments, service)


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
