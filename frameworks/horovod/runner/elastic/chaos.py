"""Brings faults about in an elastic job, for users who want to see that their training goes on."""

import random
import signal
from collections.abc import Collection
from dataclasses import dataclass, field

KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_SPECIFICATION = "kill:every=20s, kill:every=20s,rank=1 or stop:every=60s"
_NEVER = float("inf")


@dataclass
class Chaos:
    """Sends a signal to one rank in each period: at a random moment of it, so that it hits every phase.

    ``rank``: which one; None: a random one, and never the last that has the state of the training.
    """

    number: int
    period: float
    rank: int | None = None
    _begin: float | None = None
    _due: float = _NEVER
    _random: random.Random = field(default_factory=random.Random)
    hits: int = 0
    _has_told: bool = False
    _idle: str = ""  # why a fault that was due was none

    def choose(
        self, ranks: Collection[int], now: float, holders: Collection[int] | None = None
    ) -> int | None:
        """The rank that gets the signal now, of those that there are; None: none does. ``holders``: the ranks
        that have the state of the training; None: all.
        """
        if not ranks:  # the next ones are hit in a period of their own
            self._begin, self._due = None, _NEVER
            return None
        if self._begin is None:
            self._plan(now)
        if now < self._due:
            return None
        self._plan(max(now, (self._begin or 0.0) + self.period))
        rank = self._target(ranks, ranks if holders is None else holders)
        self.hits += rank is not None
        return rank

    def _target(self, ranks: Collection[int], holders: Collection[int]) -> int | None:
        if self.rank is not None and self.rank not in ranks:
            self._idle = f"there is no rank {self.rank}"
            return None
        if self.rank is not None:
            return self.rank
        others = sorted(ranks if len(holders) > 1 else set(ranks) - set(holders))
        if not others:
            self._idle = "the only rank has the state of the training, and is spared"
            return None
        return self._random.choice(others)

    def excuse(self, is_over: bool = False) -> str:
        """Why nothing happens, once; at the end of the job also that it was too short. Empty: it does."""
        if is_over and not self.hits and not self._idle:
            self._idle = f"the job was over before the first fault, {self.period / 2:g} to {self.period:g} s"
            self._idle += " after its beginning"
        text, self._idle = ("" if self._has_told else self._idle), ""
        self._has_told |= bool(text)
        return text

    def next_time(self) -> float:
        """When to call ``choose``."""
        return self._due

    def _plan(self, begin: float) -> None:
        self._begin = begin
        self._due = begin + self._random.uniform(0.5, 1.0) * self.period


def parse(text: str) -> Chaos:
    """Of the option --chaos. Raises ValueError for what is none."""
    kind, _, rest = text.partition(":")
    fields = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    period, rank = fields.pop("every", ""), fields.pop("rank", None)
    try:
        seconds = float(period.removesuffix("s"))
        number = None if rank is None else int(rank)
        if kind not in KINDS or fields or not 0 < seconds < _NEVER or (number or 0) < 0:
            raise ValueError
        return Chaos(KINDS[kind], seconds, number)
    except ValueError:
        raise ValueError(f"{text!r} is no fault; write for example {_SPECIFICATION}") from None
