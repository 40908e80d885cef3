"""How the job of an MPI launcher has ended, from its status and its own words. Pure."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from horovod.bootstrap.store.verdicts import Kind

_EXITED = re.compile(r"Process name: \[\[\d+,\d+\],(\d{1,7})\]\s+Exit code: +(\d{1,3})\b")
_KILLED = re.compile(r"process rank (\d{1,7}) with PID \d+ on node \S+ exited on signal (\d{1,2})\b")
_KILLED_SOMEBODY = re.compile(r"TERMINATED WITH THE EXIT STRING: .*\(signal (\d{1,2})\)")
# Of the first rank that a signal ended. The string above is of all of them, their numbers joined bit by bit.
_KILLED_FIRST = re.compile(r"EXIT CODE: +(\d{1,2})\b")
# As the core says it; see watcher.cc and diagnosis.cc in core/runtime/liveness.
_BLAMED = re.compile(
    r"rank (\d{1,7})(?: on [^\n]{1,300})? \(pid \d+\) (has not responded for|has left the job|died)[^\n]*"
)
_KINDS = {"has not responded for": Kind.SILENT, "has left the job": Kind.LEFT, "died": Kind.DIED}


@dataclass(frozen=True)
class Outcome:
    """``code``: exit status, or minus the signal, of the rank that failed first; of the launcher, when it
    does not tell the rank (None).
    """

    rank: int | None
    code: int


@dataclass(frozen=True)
class Blame:
    """Whom ranks gave up on: what it did, and how they put it."""

    kind: Kind
    rank: int
    reason: str


def after_silence(found: Outcome, blame: Blame | None) -> Outcome:
    """``found``, where ranks gave up on a silent one, and did not only warn. MPICH kills who has not ended
    when another has, and tells only that: so the signal does not count.
    """
    gave_up = blame is not None and blame.kind == Kind.SILENT and "at what that process does" in blame.reason
    return Outcome(None, 1) if gave_up and found.rank is None and found.code < 0 else found


def outcome(code: int, words: str, size: int) -> Outcome:
    """What became of a job of ``size`` ranks whose launcher ended with ``code`` after it said ``words``."""
    if code == 0:
        return Outcome(None, 0)
    if (found := _EXITED.search(words)) and int(found[1]) < size and int(found[2]):
        return Outcome(int(found[1]), int(found[2]))
    if (found := _KILLED.search(words)) and int(found[1]) < size and int(found[2]):
        return Outcome(int(found[1]), -int(found[2]))
    if (found := _KILLED_SOMEBODY.search(words)) and int(found[1]):
        first = _KILLED_FIRST.search(words)
        return Outcome(None, -int(first[1] if first and int(first[1]) else found[1]))
    return Outcome(None, code)


def blame(words: Iterable[str], size: int) -> Blame | None:
    """Whom most ranks of a job of ``size`` gave up on, by what each wrote last."""
    told = [last for text in words for last in [*_BLAMED.finditer(text)][-1:] if int(last[1]) < size]
    if not told:
        return None
    rank = Counter(int(found[1]) for found in told).most_common(1)[0][0]
    found = next(found for found in told if int(found[1]) == rank)
    return Blame(_KINDS[found[2]], rank, found[0])
