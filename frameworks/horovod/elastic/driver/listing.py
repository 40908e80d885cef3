"""Which of the hosts that are listed an elastic job uses: those that come and go are left alone. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

STEADY_SECONDS = 300.0
"""A host that has been there, or away, for so long does not flap."""
_NEVER = float("inf")


@dataclass
class _Host:
    slots: int = 0  # as they are listed
    came_at: float = -_NEVER
    went_at: float = -_NEVER
    returns: int = 0  # in a row, each soon
    held_until: float = -_NEVER

    def is_forgotten(self, now: float) -> bool:
        """Whether it has been away for so long that it would come as a new one."""
        return now > self.went_at + STEADY_SECONDS


class Listing:
    """A host that goes is given up at once: its ranks may be lost. Each change costs the job a generation, so
    one that comes back soon has to stay for a while before it is used, the longer the more often.

    Args:
        pause: how many seconds, by how often in a row it has come back.
    """

    def __init__(self, pause: Callable[[int], float]) -> None:
        self._pause = pause
        self._hosts: dict[str, _Host] = {}

    def see(self, slots: Mapping[str, int], busy: Collection[str], now: float) -> dict[str, float]:
        """Takes what is listed. Returns for how many seconds hosts are left alone. On those that are ``busy``
        workers still run: one that was away for a moment keeps them, once.
        """
        lately = (name for name, host in self._hosts.items() if host.slots or not host.is_forgotten(now))
        names = [*slots, *(name for name in lately if name not in slots)]  # the order counts
        self._hosts = {name: self._hosts.get(name, _Host()) for name in names}
        pauses = {
            name: self._take(host, max(0, slots.get(name, 0)), name in busy, now)
            for name, host in self._hosts.items()
        }
        return {name: pause for name, pause in pauses.items() if pause}

    def _take(self, host: _Host, slots: int, is_busy: bool, now: float) -> float:
        before, host.slots = host.slots, slots
        if before and not slots:
            host.went_at = now
        if before or not slots:
            return 0.0
        was_steady = host.went_at > host.came_at + STEADY_SECONDS
        host.came_at = now
        if host.is_forgotten(now):
            host.returns = 0
            return 0.0
        host.returns = 1 if was_steady else host.returns + 1
        if is_busy and host.returns == 1:
            return 0.0
        pause = self._pause(host.returns)
        host.held_until = now + pause
        return pause

    def usable(self, is_enough: Callable[[Mapping[str, int]], bool], now: float) -> dict[str, int]:
        """The slots to use by now: all that are listed, where the others are not enough for the job."""
        listed = {name: host for name, host in self._hosts.items() if host.slots}
        found = {name: host.slots for name, host in listed.items() if host.held_until <= now}
        if len(found) == len(listed) or is_enough(found):
            return found
        for host in listed.values():
            host.held_until = now
        return {name: host.slots for name, host in listed.items()}

    def next_time(self, now: float) -> float:
        """When more may be used (infinity: no host is left alone)."""
        times = (host.held_until for host in self._hosts.values() if host.slots)
        return min((time for time in times if time > now), default=_NEVER)
