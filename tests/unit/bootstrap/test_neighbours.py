"""Which ranks have a link to each other."""

import itertools
import random
from collections import deque

import pytest

from horovod.bootstrap.mesh import neighbours
from horovod.bootstrap.mesh.neighbours import Neighbours, everybody, sharing, watched

SIZES = [*range(1, 40), 64, 100, 255, 256, 257, 1000]


@pytest.mark.parametrize("linked", [everybody, watched, sharing])
def test_both_ends_agree_on_every_link(linked: Neighbours) -> None:
    for size in SIZES:
        ends = {(rank, peer) for rank in range(size) for peer in linked(rank, size)}
        assert all(rank != peer and 0 <= peer < size and (peer, rank) in ends for rank, peer in ends)


def _steps_to_all(size: int, missing: set[int], start: int) -> int:
    """How many links the farthest rank is away, on ways that avoid some ranks; -1 when there is no way."""
    steps, pending = {start: 0}, deque([start])
    while pending:
        rank = pending.popleft()
        for peer in watched(rank, size) - missing - steps.keys():
            steps[peer] = steps[rank] + 1
            pending.append(peer)
    return max(steps.values()) if len(steps) == size - len(missing) else -1


def test_news_of_a_rank_reach_all_in_few_steps_over_few_links() -> None:
    for size in SIZES:
        power = (size - 1).bit_length()
        assert max(len(watched(rank, size)) for rank in range(size)) <= max(7, 2 * power)
        assert 0 <= _steps_to_all(size, set(), 0) <= max(1, (power + 1) // 2)


def test_news_find_a_way_round_ranks_that_are_missing() -> None:
    for size, count in itertools.product((9, 12, 64, 256), (1, 2, 3)):
        dice = random.Random(size * count)
        for _ in range(50):
            start, *missing = dice.sample(range(size), count + 1)
            assert _steps_to_all(size, set(missing), start) > 0


def test_few_ranks_all_watch_each_other() -> None:
    for size in range(1, neighbours.ALL_WATCHED + 1):
        assert all(watched(rank, size) == everybody(rank, size) for rank in range(size))


def test_descriptors_travel_over_a_tree_whose_links_are_watched_too() -> None:
    for size in SIZES:
        links = [(rank, peer) for rank in range(size) for peer in sharing(rank, size) if peer < rank]
        assert len(links) == size - 1 and len({rank for rank, _ in links}) == size - 1
        assert all(peer in watched(rank, size) for rank, peer in links)
        assert max(len(sharing(rank, size)) for rank in range(size)) <= (size - 1).bit_length()
