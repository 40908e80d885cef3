"""The report on a failed job: at most 12 lines that name the rank which failed first."""

import signal
from collections.abc import Sequence

from .ending import Exit
from .output import Tail

_OUTPUT_LINES = 9
_WIDTH = 200
_RANKS_NAMED = 16


def failure_report(first: Exit, others: Sequence[int], pid: int, stdout: Tail, stderr: Tail) -> bytes:
    """The text for the launcher's stderr; ``others`` are the ranks that failed after it."""
    lines = [f"rank {first.rank} (localhost, pid {pid}) {_how(first)}; the job's status is {first.status}"]
    if others:
        names = ", ".join(map(str, sorted(others)[:_RANKS_NAMED])) + (
            ", ..." if len(others) > _RANKS_NAMED else ""
        )
        lines.append(f"after it failed: rank{'s' if len(others) > 1 else ''} {names}")
    stream = "stderr"
    output = stderr.lines(_OUTPUT_LINES, _WIDTH)
    if not output:
        stream, output = "stdout", stdout.lines(_OUTPUT_LINES, _WIDTH)
    if output:
        lines.append(f"the last lines of its {stream}:")
    text = [f"horovodrun: {line}" for line in lines] + [f"  {line}" for line in output]
    return ("\n".join(text) + "\n").encode(errors="replace")


def _how(exit: Exit) -> str:
    if exit.code > 0:
        return f"failed first, with exit status {exit.code}"
    try:
        name = signal.Signals(-exit.code).name
    except ValueError:
        name = f"signal {-exit.code}"
    return f"failed first: killed by {name}"
