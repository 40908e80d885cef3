"""Which hosts new workers may be started on, by how workers failed there. Pure: events and times in."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

PATIENCE = 3
"""So many failures in a row set a host aside."""
HEALTHY_SECONDS = 5.0
"""A worker that was a member for so long has not failed in a row with others."""
MOMENT_SECONDS = 2.0
"""Workers that fail on a host within this time, and ran together, have failed once."""
COOLDOWN = (1.0, 60.0)
_JITTER = 0.5


@dataclass
class _Record:
    failures: int = 0  # in a row
    failed_at: float = float("-inf")  # the last of them
    aside_until: float = 0.0


@dataclass
class Reliability:
    """A host where workers fail again and again is set aside for a while, which doubles each time; workers
    that run there are left alone.

    Args:
        cooldown: the shortest and the longest time, in seconds, before jitter.
        seed: of the jitter.
    """

    cooldown: tuple[float, float] = COOLDOWN
    seed: int | None = None
    _records: dict[str, _Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def failed(self, host: str, began: float, lived: float, is_lost: bool, now: float) -> float:
        """A worker failed that was started at ``began``, and had been a member for ``lived`` seconds;
        ``is_lost``: with its whole host.

        Returns:
            For how many seconds the host is set aside; 0: it is not, or was already for the same failure.
        """
        record = self._records.setdefault(host, _Record())
        is_same = began < record.failed_at and now < record.failed_at + MOMENT_SECONDS
        if is_same and (not is_lost or record.aside_until > now):
            return 0.0
        if not is_same:
            record.failures = 1 if lived >= HEALTHY_SECONDS else record.failures + 1
            record.failed_at = now
        times = record.failures - PATIENCE
        if is_lost:
            times = max(times, 0)
        if times < 0:
            return 0.0
        pause = self._pause(times) * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        record.aside_until = max(record.aside_until, now + pause)
        return pause

    def pause_of_returns(self, times: int) -> float:
        """For how many seconds a host is left alone that has come back so often: as where workers fail, and
        with others that come back with it.
        """
        return self._pause(PATIENCE + times - 1)

    def _pause(self, times: int) -> float:
        shortest, longest = self.cooldown
        return min(longest, shortest * 2.0 ** min(times, 30))

    def rest(self, host: str, now: float) -> float:
        """The host is about to go, or needed by others. Returns for how many seconds it is set aside."""
        record = self._records.setdefault(host, _Record())
        record.aside_until = max(record.aside_until, now + self.cooldown[1])
        return self.cooldown[1]

    def usable(self, slots: Mapping[str, int], now: float) -> dict[str, int]:
        """The slots of the hosts that are not set aside."""
        return {host: count for host, count in slots.items() if self._until(host) <= now}

    def next_time(self, now: float) -> float:
        """When the next host may be used again (infinity: none is set aside)."""
        return min(
            (each.aside_until for each in self._records.values() if each.aside_until > now),
            default=float("inf"),
        )

    def _until(self, host: str) -> float:
        record = self._records.get(host)
        return 0.0 if record is None else record.aside_until
