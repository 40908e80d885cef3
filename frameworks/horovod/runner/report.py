"""The report on a failed job: at most 12 lines, of which the first names the cause."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.bootstrap.text import escaped

from .arbitration import Cause
from .ending import Exit, signal_name
from .output import Tail, crash

_LINES = 12
_WIDTH = 200
_REASON_WIDTH = 160
_REASON_LINES = 6
_RANKS_NAMED = 16


@dataclass(frozen=True)
class Process:
    """Where a rank ran. ``pid`` is None when it has never started."""

    host: str
    pid: int | None


@dataclass(frozen=True)
class Failure:
    """What is known about a failed job: its cause, the processes of its ranks, who failed later, who was
    stopped when the first rank failed, and what the launcher found out about the cause. ``is_alike``: all
    ranks have failed with the status of the cause and with one traceback.
    """

    cause: Cause
    processes: Mapping[int, Process]
    later: Sequence[int]
    stopped: Sequence[int]
    notes: Sequence[str] = field(default=())
    is_alike: bool = False


def failure_report(failure: Failure, stdout: Tail, stderr: Tail) -> bytes:
    """The text for the launcher's stderr, with the last output of the rank that is to blame."""
    cause = failure.cause
    output: list[str] = []
    lines = [f"{_headline(failure)}; the job's status is {cause.status}", *failure.notes]
    if cause.verdict is not None:
        # Where nobody is to blame, a rank's output would only say the same again.
        lines += _reason(cause.verdict, _LINES - 2 if cause.rank is None else _REASON_LINES)
    if cause.rank is None and _is(cause, Kind.ABSENT) and failure.stopped:
        lines.append(f"stopped (state T): {_names(failure.stopped)}")
    if failure.later and not failure.is_alike:
        title = "ended with an error" if cause.rank is None else "after it failed"
        lines.append(f"{title}: {_names(failure.later)}")
    if cause.rank is not None:
        title, output = evidence(cause.rank, _LINES - len(lines) - 1, stdout, stderr)
        lines += [title] if output else []
    text = [f"horovodrun: {line}" for line in lines] + [f"  {line}" for line in output]
    return ("\n".join(text) + "\n").encode(errors="replace")


def evidence(number: int, room: int, stdout: Tail, stderr: Tail, noun: str = "rank") -> tuple[str, list[str]]:
    """A title, and the most telling lines of what a rank wrote, which is called so."""
    for title, lines in (
        (f"{noun} {number} crashed, innermost call first:", crash(stderr, room, _WIDTH)),
        (f"the last lines of {noun} {number} on stderr:", stderr.lines(room, _WIDTH)),
        (f"the last lines of {noun} {number} on stdout:", stdout.lines(room, _WIDTH)),
    ):
        if lines:
            return title, lines
    return "", []


def _headline(failure: Failure) -> str:
    cause = failure.cause
    if failure.is_alike:
        return f"all {len(failure.processes)} ranks failed with exit status {cause.status} and the same error"
    if cause.verdict is not None and cause.verdict.kind == Kind.LINK:
        return _broken_link(failure, cause.verdict)
    if cause.rank is None and _is(cause, Kind.ABSENT):
        return "not all ranks came through hvd.init()"
    if cause.rank is None:
        return "the ranks wait for each other" if _is(cause, Kind.STALL) else "the job cannot go on"
    who = _process(failure, cause.rank)
    if cause.verdict is not None and cause.alive and _is(cause, Kind.SILENT):
        return f"{_process(failure, cause.verdict.observer)} did not hear {who} while both were alive"
    if cause.exit is not None and cause.exit.lost:
        return _lost_host(failure, cause.rank, cause.exit)
    if cause.exit is not None and cause.exit.code != 0:
        # A stopped rank that knows nothing of horovod: who gave up waiting for it may not be to blame.
        others = [rank for rank in failure.stopped if rank != cause.rank]
        stopped = f"{_names(others)} stopped (state T) and not responding when " if others else ""
        sender = f" from {cause.exit.killer}" if cause.exit.killer else ""
        return f"{stopped}{who} {_how(cause.exit)}{sender}"
    return f"{who} {_misdeed(failure, cause)}"


def _misdeed(failure: Failure, cause: Cause) -> str:
    """What a rank did that has not failed itself."""
    if _is(cause, Kind.ABSENT):
        return _absence(failure, cause)
    if cause.exit is not None:
        unsaid = " and without hvd.shutdown()" if _is(cause, Kind.DIED) else ""
        return f"ended too early, with exit status 0{unsaid}, while other ranks needed it"
    if _is(cause, Kind.SILENT):
        return f"stopped responding{' (state T: stopped)' if cause.rank in failure.stopped else ''}"
    if _is(cause, Kind.LEFT):
        return f"left the job too early{'' if cause.untold else ', by hvd.shutdown()'}"
    if _is(cause, Kind.STALL):
        return "did not submit what other ranks wait for"
    if _is(cause, Kind.CORRUPT):
        return "sent corrupt data"
    if not _is(cause, Kind.DIED):
        return "cannot go on"
    return "died" if cause.untold else "closed its connections although it was alive"


def _absence(failure: Failure, cause: Cause) -> str:
    if cause.exit is not None:
        return "ended with exit status 0 and did not come to hvd.init()"
    state = " (state T: stopped)" if cause.rank in failure.stopped else ""
    return f"did not come through hvd.init() in time{state}"


def _broken_link(failure: Failure, verdict: Verdict) -> str:
    ends = [_process(failure, rank) for rank in (verdict.culprit, verdict.other) if rank is not None]
    return f"the {verdict.link.name.lower()} link between {' and '.join(ends)} broke while both were alive"


def _lost_host(failure: Failure, rank: int, exit: Exit) -> str:
    host = failure.processes[rank].host
    ranks = [number for number, process in failure.processes.items() if process.host == host]
    return f"host {escaped(host)} of {_names(ranks)}: {exit.lost}"


def _is(cause: Cause, kind: Kind) -> bool:
    return cause.verdict is not None and cause.verdict.kind == kind


def _reason(verdict: Verdict, room: int) -> list[str]:
    lines = [escaped(line) for line in verdict.reason.splitlines() if line.strip()]
    parts = [part for line in lines for part in _wrapped(line)]
    return parts if len(parts) <= room else [*parts[: room - 1], f"{parts[room - 1]} ..."]


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _REASON_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _process(failure: Failure, rank: int) -> str:
    process = failure.processes[rank]
    pid = "" if process.pid is None else f", pid {process.pid}"
    return f"rank {rank} ({escaped(process.host)}{pid})"


def _names(ranks: Sequence[int]) -> str:
    names = ", ".join(map(str, sorted(ranks)[:_RANKS_NAMED])) + (", ..." if len(ranks) > _RANKS_NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def _how(exit: Exit) -> str:
    if exit.code > 0:
        return f"failed first, with exit status {exit.code}"
    return f"failed first: killed by {signal_name(-exit.code)}"
