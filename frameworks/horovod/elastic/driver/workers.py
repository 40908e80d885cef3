"""The workers of an elastic job, and which of them a generation takes. Pure."""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .numbering import Candidate


class State(enum.Enum):
    """What a worker does."""

    STARTING = enum.auto()  # it has not asked for a place yet
    WAITING = enum.auto()  # it has asked for a place in the next generation
    MEMBER = enum.auto()  # it is in the current generation, as far as anybody knows
    LEAVING = enum.auto()  # it ends in good order, because it was asked to


@dataclass
class Worker:
    """One process. ``generation`` is the last one that it was in (0: none); it ``holds`` the state
    of the training when it has made it or got it; ``since`` is when it came into its ``state``,
    ``began`` when it was started, ``killed_at`` when it was asked to end, ``shot_at`` when it was killed.
    """

    number: int
    host: str
    since: float
    state: State = State.STARTING
    generation: int = 0
    rank: int | None = None
    local_rank: int | None = None
    holds: bool = False
    is_killed: bool = False
    began: float = 0.0
    killed_at: float = float("inf")
    shot_at: float = float("inf")

    @property
    def order(self) -> tuple[bool, bool, int, int]:
        """Who holds the state first, in the order of ranks, then the others as they were started."""
        return not self.holds, self.generation == 0, self.rank or 0, self.number

    def candidate(self) -> Candidate:
        """For ``numbering.number``."""
        return Candidate(self.number, self.host, self.rank, self.local_rank)


def sides(members: Iterable[Worker], absent: Collection[int]) -> tuple[list[Worker], list[Worker]]:
    """Of two sides that do not reach each other, the one that is to leave and the one that stays: where more
    have the state of the training, or the lowest rank is.
    """
    parts: tuple[list[Worker], list[Worker]] = ([], [])
    for member in members:
        parts[member.number in absent].append(member)
    leaving, staying = sorted(parts, key=_claim)
    return leaving, staying


def _claim(side: Iterable[Worker]) -> tuple[int, float]:
    ranks = [member.rank or 0 for member in side]
    return sum(member.holds for member in side), -min(ranks, default=float("inf"))


def chosen(workers: Iterable[Worker], slots: Mapping[str, int], limit: int) -> list[Worker]:
    """Those of ``workers`` for whom there is room: at most ``slots`` on each host, and ``limit`` in all."""
    taken: Counter[str] = Counter()
    found: list[Worker] = []
    for worker in sorted(workers, key=lambda each: each.order):
        if len(found) < limit and taken[worker.host] < slots.get(worker.host, 0):
            taken[worker.host] += 1
            found.append(worker)
    return found


def missing(
    workers: Collection[Worker], usable: Mapping[str, int], slots: Mapping[str, int], limit: int, spares: int
) -> list[str]:
    """On which hosts to start workers, an entry for each: as many as there is room for, and ``spares`` more.

    ``usable`` are the hosts among all ``slots`` that may get new ones. Spares do not stand in for workers
    whose host may not be used now.
    """
    counts = Counter(worker.host for worker in workers)
    regular = len(chosen(workers, slots, limit))
    room = min(limit, sum(slots.values())) - regular
    found: list[str] = []
    for host, count in usable.items():
        new = max(0, min(room, count - counts[host]))
        found += [host] * new
        counts[host] += new
        room -= new
    if room > 0 or not usable:
        return found
    for _ in range(spares - (len(workers) - regular)):
        found.append(min(usable, key=lambda host: counts[host] - usable[host]))
        counts[found[-1]] += 1
    return found
