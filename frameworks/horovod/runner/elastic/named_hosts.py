"""The hosts of an elastic job: those that the user has named, and those that dial the launcher, each of which
is there as long as its agent is.
"""

from collections.abc import Mapping

from ..nodes.joining import Joining


class NamedHosts:
    """See ``discovery.HostDiscovery``. ``named`` are hosts that the job has in any case."""

    def __init__(self, named: Mapping[str, int], joining: Joining | None, slots: int) -> None:
        """``joining``: where others dial, if they may; ``slots`` are those of one that does not say them."""
        self.hosts = self._named = dict(named)
        self._joining = joining
        self._slots = slots
        self._told: dict[str, int] = {}

    def tend(self, now: float) -> Mapping[str, int] | None:
        """The hosts when they have changed."""
        ways = [] if self._joining is None else self._joining.here
        slots = {way.host: way.application.slots for way in ways}
        joined = {host: self._slots if count is None else count for host, count in slots.items()}
        hosts = {**self._named, **joined}
        if hosts == self._told:
            return None
        self.hosts = self._told = hosts
        return hosts

    def next_time(self) -> float:
        """The loop wakes for whoever comes or goes."""
        return float("inf")
