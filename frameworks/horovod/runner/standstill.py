"""Which ranks a signal has stopped, and nobody makes them go on: they are found stopped again and again."""

import collections
from collections.abc import Callable, Collection, Mapping

from horovod.bootstrap.variables import usable_seconds

LOOKS = 5
"""So many may pass: about as long as ranks wait for a silent one."""
_PERIOD_SECONDS = 1.0
_VARIABLE = "HOROVOD_STOPPED_TIMEOUT_SECONDS"
_DEFAULT_SECONDS = 600.0


def looks_of(environ: Mapping[str, str]) -> int:
    """As many as the user waits for a stopped rank."""
    seconds = usable_seconds(_VARIABLE, environ, _DEFAULT_SECONDS)  # of a value that is none, ranks say so
    return max(LOOKS, int(seconds / _PERIOD_SECONDS) - 1)


class Standstill:
    """``find`` looks which ranks are stopped, and returns those that are known by now: the answer of another
    host comes later.
    """

    def __init__(self, find: Callable[[], Collection[int]], looks: int = LOOKS) -> None:
        self._find = find
        self._most = looks
        self._looks: collections.Counter[int] = collections.Counter()  # in a row, by rank
        self._next = 0.0

    def look(self, now: float) -> list[int]:
        """Once in a while, the ranks that have been stopped for long."""
        if now < self._next:
            return []
        self._next = now + _PERIOD_SECONDS
        self._looks = collections.Counter({rank: self._looks[rank] + 1 for rank in self._find()})
        return [rank for rank, looks in self._looks.items() if looks > self._most]

    def next_time(self) -> float:
        """When to look again."""
        return self._next

    def forget(self) -> None:
        """Nobody waits for a rank just now."""
        self._looks.clear()
        self._next = 0.0
