"""Which ranks have a link to each other, by what the link is for.

Pure functions of rank and size, of a host or of the job, so that both ends of a link agree on it without a
word.
"""

from collections.abc import Callable

# Up to so many ranks all watch each other; beyond, news of a rank reaches the others over several links.
ALL_WATCHED = 8

Neighbours = Callable[[int, int], set[int]]


def everybody(rank: int, size: int) -> set[int]:
    """All other ranks."""
    return set(range(size)) - {rank}


def watched(rank: int, size: int) -> set[int]:
    """Ranks at distances that are powers of two, around a circle: what one of them learns is everywhere
    after log2(size) steps, also while a few of them are missing.
    """
    if size <= ALL_WATCHED:
        return everybody(rank, size)
    steps = [1 << power for power in range((size - 1).bit_length())]
    return {(rank + sign * step) % size for step in steps for sign in (1, -1)} - {rank}


def sharing(rank: int, size: int) -> set[int]:
    """The parent and the children of a rank in the binomial tree over which descriptors travel, as in the
    core's ``Tree``.
    """
    parent = {rank & (rank - 1)} if rank else set()
    reach = rank & -rank if rank else size
    steps = [1 << power for power in range((size - 1).bit_length())]
    return parent | {rank + step for step in steps if step < reach and rank + step < size}
