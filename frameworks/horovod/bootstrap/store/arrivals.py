"""How far the ranks have come in a start, by what they set in the store. Pure: keys and times in.

Ranks watch each other's start. The launcher watches it as well, as all of them may be stopped at once.
"""

import re
from collections.abc import Sequence

from .messages import LINKED
from .verdicts import Kind, Verdict

_STEP = rb"([0-9]{1,9})/(mesh|linked)/[0-9]{1,9}"
# A rank that lives gives up at the timeout, and knows more.
_SLACK_SECONDS = 3.0
_RANKS_NAMED = 16
_NEVER = float("inf")


class Arrivals:
    """The start of the latest generation of ``size`` ranks. They have ``seconds`` from the first arrival to
    the last one, and as many again to make their links.

    ``deadline``: when ``overdue`` has something to tell, on the clock of all the times here.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self.deadline = _NEVER
        self._size = size
        self._seconds = seconds
        self._generation = 0
        self._arrived: set[int] = set()
        self._linked: set[int] = set()

    def note(self, rank: int, key: bytes, now: float) -> None:
        """Takes what ``rank`` has set."""
        step = re.fullmatch(_STEP, key)
        if step is None or int(step[1]) < self._generation:
            return
        if int(step[1]) > self._generation:
            self._generation, self._arrived, self._linked = int(step[1]), set(), set()
            self.deadline = now + self._seconds + _SLACK_SECONDS
        if step[2] == LINKED.encode():
            self._linked.add(rank)
            if self.are_all_linked:
                self.deadline = _NEVER
        elif rank not in self._arrived:
            self._arrived.add(rank)
            if len(self._arrived) == self._size:
                self.deadline = now + self._seconds + _SLACK_SECONDS

    @property
    def generation(self) -> int:
        """The number of the latest start."""
        return self._generation

    def has_arrived(self, rank: int) -> bool:
        """Whether ``rank`` has come to it."""
        return rank in self._arrived

    def is_linked(self, rank: int) -> bool:
        """Whether ``rank`` has come through the start."""
        return rank in self._linked

    @property
    def are_all_linked(self) -> bool:
        """Whether all ranks have come through the start."""
        return len(self._linked) == self._size

    def stand_down(self) -> None:
        """A rank has said itself why this start fails."""
        self.deadline = _NEVER

    def overdue(self, now: float) -> Verdict | None:
        """What is to be said at the deadline, once; the first absent rank stands for who says it."""
        if now < self.deadline:
            return None
        self.deadline = _NEVER
        arrived = len(self._arrived) == self._size
        absent = sorted(set(range(self._size)) - (self._linked if arrived else self._arrived))
        culprit = absent[0] if len(absent) == 1 else None
        return Verdict(absent[0], Kind.ABSENT, culprit, self._reason(absent, arrived))

    def _reason(self, absent: Sequence[int], arrived: bool) -> str:
        names = f"rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent[:_RANKS_NAMED]))}"
        names += ", ..." if len(absent) > _RANKS_NAMED else ""
        has = "have" if len(absent) > 1 else "has"
        what = f"{has} arrived, and made no links" if arrived else "never arrived"
        return (
            f"in {self._seconds:g} s {names} {what}, and no rank says why. Look whether the "
            "ranks are stopped. For a slow start, raise HOROVOD_START_TIMEOUT or --start-timeout"
        )
