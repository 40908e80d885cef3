"""Which rank each worker has in a generation: survivors keep their numbers where that can be."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A worker that is to be in a generation, with the numbers that it had in its last one, if any."""

    worker: int
    host: str
    rank: int | None = None
    local_rank: int | None = None


@dataclass(frozen=True)
class Member:
    """A worker's place in a generation; see ``runner.hosts.Placement`` for the numbers."""

    worker: int
    host: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def number(candidates: Sequence[Candidate]) -> list[Member]:
    """The members of a generation, in the order of their ranks.

    A worker keeps its rank, and on its host its local rank, unless there are too few for so high a number.
    Then, and for newcomers in their order, it takes the lowest that is free.
    """
    ranks = _numbers({each.worker: each.rank for each in candidates})
    by_host: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda each: ranks[each.worker]):
        by_host.setdefault(candidate.host, []).append(candidate)
    local = {
        worker: found
        for host in by_host.values()
        for worker, found in _numbers({each.worker: each.local_rank for each in host}).items()
    }
    widths = Counter(local.values())
    members = []
    crossed: Counter[int] = Counter()
    for host, candidates_there in by_host.items():
        for each in candidates_there:
            position = local[each.worker]
            crossing, crossed[position] = crossed[position], crossed[position] + 1
            own = ranks[each.worker], len(candidates), position, len(candidates_there)
            members.append(Member(each.worker, host, *own, crossing, widths[position]))
    return sorted(members, key=lambda member: member.rank)


def _numbers(held: Mapping[int, int | None]) -> dict[int, int]:
    """0 to ``len(held) - 1``, each once, to the keys of ``held``, whose values are what they had."""
    found: dict[int, int] = {}
    for key, before in held.items():
        if before is not None and before < len(held) and before not in found.values():
            found[key] = before
    free = iter(sorted(set(range(len(held))) - set(found.values())))
    homeless = sorted(held.keys() - found.keys(), key=lambda key: (held[key] is None, held[key] or 0, key))
    return found | {key: next(free) for key in homeless}
