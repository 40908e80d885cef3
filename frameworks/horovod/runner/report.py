"""The report on a failed job: at most 12 lines that name the rank which failed first."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from .ending import Exit
from .output import Tail

_LINES = 12
_WIDTH = 200
_RANKS_NAMED = 16


@dataclass(frozen=True)
class Failure:
    """What is known about a failed job: who failed first, who after it, and who was stopped then."""

    first: Exit
    pid: int
    later: Sequence[int]
    stopped: Sequence[int]


def failure_report(failure: Failure, stdout: Tail, stderr: Tail) -> bytes:
    """The text for the launcher's stderr, with the last output of the first failed rank."""
    first = failure.first
    ended = (
        f"rank {first.rank} (localhost, pid {failure.pid}) {_how(first)}; the job's status is {first.status}"
    )
    # A stopped rank does not end: who gave up waiting for it did, and may not be to blame.
    stopped = (
        f"{_names(failure.stopped)} stopped (state T) and not responding when " if failure.stopped else ""
    )
    lines = [stopped + ended]
    if failure.later:
        lines.append(f"after it failed: {_names(failure.later)}")
    room = _LINES - len(lines) - 1
    stream, output = "stderr", stderr.lines(room, _WIDTH)
    if not output:
        stream, output = "stdout", stdout.lines(room, _WIDTH)
    if output:
        lines.append(f"the last lines of its {stream}:")
    text = [f"horovodrun: {line}" for line in lines] + [f"  {line}" for line in output]
    return ("\n".join(text) + "\n").encode(errors="replace")


def _names(ranks: Sequence[int]) -> str:
    names = ", ".join(map(str, sorted(ranks)[:_RANKS_NAMED])) + (", ..." if len(ranks) > _RANKS_NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def _how(exit: Exit) -> str:
    if exit.code > 0:
        return f"failed first, with exit status {exit.code}"
    try:
        name = signal.Signals(-exit.code).name
    except ValueError:
        name = f"signal {-exit.code}"
    return f"failed first: killed by {name}"
