"""How the job of an MPI launcher has ended, from its status and its own words. Pure."""

import re
from dataclasses import dataclass

_EXITED = re.compile(r"Process name: \[\[\d+,\d+\],(\d{1,7})\]\s+Exit code: +(\d{1,3})\b")
_KILLED = re.compile(r"process rank (\d{1,7}) with PID \d+ on node \S+ exited on signal (\d{1,2})\b")
_KILLED_SOMEBODY = re.compile(r"TERMINATED WITH THE EXIT STRING: .*\(signal (\d{1,2})\)")


@dataclass(frozen=True)
class Outcome:
    """``code``: exit status, or minus the signal, of the rank that failed first; of the launcher, when it
    does not tell the rank (None).
    """

    rank: int | None
    code: int


def outcome(code: int, words: str, size: int) -> Outcome:
    """What became of a job of ``size`` ranks whose launcher ended with ``code`` after it said ``words``."""
    if code == 0:
        return Outcome(None, 0)
    if (found := _EXITED.search(words)) and int(found[1]) < size and int(found[2]):
        return Outcome(int(found[1]), int(found[2]))
    if (found := _KILLED.search(words)) and int(found[1]) < size and int(found[2]):
        return Outcome(int(found[1]), -int(found[2]))
    if (found := _KILLED_SOMEBODY.search(words)) and int(found[1]):
        return Outcome(None, -int(found[1]))
    return Outcome(None, code)
