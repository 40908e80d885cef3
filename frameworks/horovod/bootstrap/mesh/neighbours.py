"""Which ranks have a link to each other from the start, by what the link is for.

Pure functions of what all ranks know, so that both ends of a link agree on it without a word. All other links
are made on demand.
"""

from collections.abc import Callable, Sequence

from ..network.auth import Role

# Up to so many all have a link to each other; beyond, news of one reaches the others over several links.
ALL_LINKED = 8
# Up to so many hosts the first one speaks to each other; beyond, there is a tree. As in the core's Topology.
FEW_HOSTS = 8

Neighbours = Callable[[int, int], set[int]]


def at_start(rank: int, hosts: Sequence[int], shares_memory: bool) -> set[tuple[int, Role]]:
    """The links (peer and role) of a rank. ``hosts``: by rank, a number for its host. ``shares_memory``:
    whether the ranks of a host do; else each is as good as a host of its own.
    """
    wanted = {(peer, Role.WATCH) for peer in circle(rank, len(hosts))}
    if shares_memory:
        local = [peer for peer, host in enumerate(hosts) if host == hosts[rank]]
        wanted |= {(local[place], Role.SHARE) for place in tree(local.index(rank), len(local))}
    else:
        hosts = range(len(hosts))
    wanted |= {(peer, Role.CONTROL) for peer in deciding(rank, hosts)}
    return wanted | {(peer, Role.DATA) for peer in exchanging(rank, hosts)}


def deciding(rank: int, hosts: Sequence[int]) -> set[int]:
    """Between the first ranks of the hosts, the parent and the children in the tree over which all ranks
    agree on the order of their operations.
    """
    firsts = [ranks[0] for ranks in _by_host(hosts)]
    if rank not in firsts:
        return set()
    linked = star if len(firsts) <= FEW_HOSTS else tree
    return {firsts[place] for place in linked(firsts.index(rank), len(firsts))}


def exchanging(rank: int, hosts: Sequence[int]) -> set[int]:
    """With whom a rank exchanges its part of the data: a chunk has as many lanes as the largest host has
    ranks, and a lane one carrier on each host (the core's Lanes). The carriers are linked as their hosts are.
    """
    by_host = _by_host(hosts)
    own = next(place for place, ranks in enumerate(by_host) if rank in ranks)
    lanes = range(by_host[own].index(rank), max(map(len, by_host)), len(by_host[own]))
    near = [by_host[place] for place in circle(own, len(by_host))]
    return {ranks[lane % len(ranks)] for ranks in near for lane in lanes}


def circle(rank: int, size: int) -> set[int]:
    """Those at distances that are powers of two, around a circle: what one of them learns is everywhere after
    log2(size) steps, also while a few of them are missing. It includes ``tree``.
    """
    if size <= ALL_LINKED:
        return set(range(size)) - {rank}
    steps = [1 << power for power in range((size - 1).bit_length())]
    return {(rank + sign * step) % size for step in steps for sign in (1, -1)} - {rank}


def star(rank: int, size: int) -> set[int]:
    """The first one and all others."""
    return {0} if rank else set(range(1, size))


def tree(rank: int, size: int) -> set[int]:
    """The parent and the children in a binomial tree, as in the core's ``Tree``."""
    parent = {rank & (rank - 1)} if rank else set()
    reach = rank & -rank if rank else size
    steps = [1 << power for power in range((size - 1).bit_length())]
    return parent | {rank + step for step in steps if step < reach and rank + step < size}


def _by_host(hosts: Sequence[int]) -> list[list[int]]:
    """The ranks of each host, ascending; the hosts in the order of their first ranks."""
    ranks: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    return list(ranks.values())
