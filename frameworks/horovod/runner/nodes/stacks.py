"""Has the processes of ranks show where they are: their Python stacks, or what the kernel tells of them.

A process that has imported horovod answers a real-time signal, by faulthandler, which needs no
interpreter lock. One that has not yet answers SIGABRT when it is a Python with PYTHONFAULTHANDLER, and
dies of it; so this is done only where SIGTERM, which follows, would kill it as suddenly.
"""

import os
import resource
import signal
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from . import guard

_ENGINE = "hvd-engine\n"  # a thread that init starts, Loop::Background; a copy by fork has none
# Of these, the highest that is free is what a rank answers. Twin: _signal_without_lock in common.
_ANSWERED = range(signal.SIGRTMIN + 1, signal.SIGRTMAX - 7)


def show(pids: Iterable[int], may_die: bool = True) -> dict[int, list[int]]:
    """Has the processes below those of ``pids``, and they themselves, show their stacks on their stderr;
    ``may_die``: also those that die of it.

    Returns the processes that do, by the one of ``pids`` that they are of.
    """
    try:
        everybody = {each.pid: each.parent for each in guard.processes()}
    except OSError:  # no descriptor is left to look
        everybody = {}
    shown = {}
    for pid in pids:
        below = [each for each in everybody if pid in _ancestors(each, everybody) or each == pid]
        caught = {each: _caught(each) for each in below}
        signals = chosen(caught, everybody, may_die, {each for each in below if _has_engine(each)})
        shown[pid] = [each for each, number in sorted(signals.items()) if _ask(each, number)]
    return shown


def chosen(
    caught: Mapping[int, int],
    parents: Mapping[int, int],
    may_die: bool = True,
    engines: Collection[int] = (),
) -> dict[int, int]:
    """The processes to ask, and the signal for each. Pure.

    Args:
        caught: of each process the signals that it catches, a bit each.
        parents: of each process.
        may_die: whether those are asked, too, that die of it.
        engines: those that are in a job: who has started them may have imported horovod only.
    """
    answering = {pid: number for pid, mask in caught.items() if (number := _highest(mask))}
    top = {pid for pid in answering if pid in engines or not answering.keys() & _ancestors(pid, parents)}
    related = top | {each for pid in top for each in _ancestors(pid, parents)}
    dying = {
        pid
        for pid, mask in caught.items()
        if may_die and _has(mask, signal.SIGABRT) and not _has(mask, signal.SIGTERM)
        if pid not in related and not answering.keys() & _ancestors(pid, parents)
    }
    first = {pid for pid in dying if not dying & _ancestors(pid, parents)}
    return {pid: answering[pid] for pid in top} | dict.fromkeys(first, int(signal.SIGABRT))


def whereabouts(pid: int) -> str:
    """What the kernel tells of a process that shows no stacks."""
    folder = Path("/proc") / str(pid)
    try:
        state = next(
            line.partition(":")[2].strip()
            for line in (folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
            if line.startswith("State:")
        )
        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        within = (folder / "wchan").read_text(encoding="ascii", errors="replace").strip("\0\n0")
    except (OSError, StopIteration):
        return "it has ended"
    return f"{name} is in state {state}" + (f", in {within}" if within else "")


def _ask(pid: int, number: int) -> bool:
    try:
        if number == signal.SIGABRT:
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
    except (OSError, ValueError):
        return False
    return True


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _caught(pid: int) -> int:
    """A bit for each signal that has a handler."""
    try:
        for line in (
            (Path("/proc") / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _has_engine(pid: int) -> bool:
    try:
        names = (file.read_text(errors="replace") for file in Path(f"/proc/{pid}/task").glob("*/comm"))
        return any(name == _ENGINE for name in names)
    except OSError:
        return False


def _highest(mask: int) -> int:
    return max((number for number in _ANSWERED if _has(mask, number)), default=0)


def _has(mask: int, number: int) -> bool:
    return bool(mask >> number - 1 & 1)
