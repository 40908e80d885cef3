"""The child of horovod.run: a horovodrun that also serves the function to the ranks and keeps what they send.

It is started with descriptors from its caller: a socket, by which it passes on notes of the ranks, tells how
the job ended and sees the caller's end; a file with the call; and an empty file for what the ranks send.
"""

import contextlib
import io
import os
import socket
import sys
from collections.abc import Sequence

from .. import launch
from ..parent import end_with
from .arguments import by_arguments
from .call import Call
from .link import Kind, packed

_USAGE_STATUS = 2


def main() -> None:
    """``sys.argv``: the descriptors, the caller's process, and the words of a command line of horovodrun."""
    numbers, parent, *words = sys.argv[1:]
    descriptors = [int(number) for number in numbers.split(",")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    caller, function, results = descriptors
    end_with(int(parent), caller)
    connection = socket.socket(fileno=caller)

    def tell(kind: Kind, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the caller has gone
            connection.sendall(packed(kind, data))

    call = Call(function, results, lambda note: tell(Kind.NOTE, note))
    status = _run(words, call)
    tell(Kind.OUTCOME, call.finish().encoded())
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
