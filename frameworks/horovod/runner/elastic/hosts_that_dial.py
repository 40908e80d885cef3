"""The hosts of an elastic job that dial the launcher: each is there as long as its agent is."""

from collections.abc import Mapping

from ..nodes.joined import Joined
from ..nodes.joining import Joining


class HostsThatDial:
    """See ``discovery.HostDiscovery``. ``named`` are hosts that the job has in any case."""

    def __init__(self, joining: Joining, named: Mapping[str, int], slots: int) -> None:
        """``slots``: of a host that does not say how many it has."""
        self._joining = joining
        self._named = dict(named)
        self._slots = slots
        self._told: Mapping[str, int] = {}

    def tend(self, now: float) -> Mapping[str, int] | None:
        """The hosts when they have changed."""
        hosts = {**self._named, **{way.host: self._slots_of(way) for way in self._joining.here}}
        if hosts == self._told:
            return None
        self._told = hosts
        return dict(hosts)

    def next_time(self) -> float:
        """The loop wakes for whoever comes or goes."""
        return float("inf")

    def way(self, host: str) -> Joined | None:
        """To the agent on a host; None: none has dialled from there, or it is lost."""
        return next((way for way in reversed(self._joining.here) if way.host == host), None)

    def close(self) -> None:
        """The job lets them go."""

    def _slots_of(self, way: Joined) -> int:
        return self._slots if way.application.slots is None else way.application.slots
