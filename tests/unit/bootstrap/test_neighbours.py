"""Which ranks have a link to each other."""

import itertools
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.mesh.neighbours import ALL_LINKED, Neighbours, at_start, circle, star, tree
from horovod.bootstrap.network.auth import Role

SIZES = [*range(1, 40), 64, 100, 255, 256, 257, 1000]


@pytest.mark.parametrize("linked", [circle, star, tree])
def test_both_ends_agree_on_every_link(linked: Neighbours) -> None:
    for size in SIZES:
        ends = {(rank, peer) for rank in range(size) for peer in linked(rank, size)}
        assert all(rank != peer and 0 <= peer < size and (peer, rank) in ends for rank, peer in ends)


def _steps_to_all(size: int, missing: set[int], start: int) -> int:
    """How many links the farthest rank is away, on ways that avoid some ranks; -1 when there is no way."""
    steps, pending = {start: 0}, deque([start])
    while pending:
        rank = pending.popleft()
        for peer in circle(rank, size) - missing - steps.keys():
            steps[peer] = steps[rank] + 1
            pending.append(peer)
    return max(steps.values()) if len(steps) == size - len(missing) else -1


def test_news_of_a_rank_reach_all_in_few_steps_over_few_links() -> None:
    for size in SIZES:
        power = (size - 1).bit_length()
        assert max(len(circle(rank, size)) for rank in range(size)) <= max(7, 2 * power)
        assert 0 <= _steps_to_all(size, set(), 0) <= max(1, (power + 1) // 2)


def test_news_find_a_way_round_ranks_that_are_missing() -> None:
    for size, count in itertools.product((9, 12, 64, 256), (1, 2, 3)):
        dice = random.Random(size * count)
        for _ in range(50):
            start, *missing = dice.sample(range(size), count + 1)
            assert _steps_to_all(size, set(missing), start) > 0


def test_few_are_all_linked() -> None:
    for size in range(1, ALL_LINKED + 1):
        assert all(circle(rank, size) == set(range(size)) - {rank} for rank in range(size))


def test_descriptors_travel_over_a_tree_whose_links_are_watched_too() -> None:
    for size in SIZES:
        links = [(rank, peer) for rank in range(size) for peer in tree(rank, size) if peer < rank]
        assert len(links) == size - 1 and len({rank for rank, _ in links}) == size - 1
        assert all(peer in circle(rank, size) for rank, peer in links)
        assert max(len(tree(rank, size)) for rank in range(size)) <= (size - 1).bit_length()


def _links(hosts: list[int], shares_memory: bool) -> set[tuple[int, int, Role]]:
    return {
        (rank, peer, role)
        for rank in range(len(hosts))
        for peer, role in at_start(rank, hosts, shares_memory)
    }


def _reached(size: int, ends: set[tuple[int, int]]) -> set[int]:
    """By way of such links, from rank 0."""
    reached, pending = {0}, [0]
    while pending:
        rank = pending.pop()
        new = {peer for peer in range(size) if (rank, peer) in ends} - reached
        reached |= new
        pending += new
    return reached


_jobs = st.lists(st.integers(0, 12), min_size=1, max_size=40)


@given(_jobs, st.booleans())
def test_links_at_the_start_are_known_at_both_ends_and_reach_all(
    hosts: list[int], shares_memory: bool
) -> None:
    links = _links(hosts, shares_memory)
    size = len(hosts)
    assert all(rank != peer and (peer, rank, role) in links for rank, peer, role in links)
    assert _reached(size, {(rank, peer) for rank, peer, role in links if role == Role.WATCH}) == set(
        range(size)
    )
    places = hosts if shares_memory else list(range(size))
    within = {(a, b) for a in range(size) for b in range(size) if places[a] == places[b]}
    for role in (Role.CONTROL, Role.DATA):
        ends = {(rank, peer) for rank, peer, of in links if of == role}
        assert not ends & within and _reached(size, ends | within) == set(range(size))
    shared = {(rank, peer) for rank, peer, role in links if role == Role.SHARE}
    assert shared <= within and (shares_memory or not shared)


@given(_jobs, st.booleans())
def test_a_decision_goes_by_one_link_from_host_to_host(hosts: list[int], shares_memory: bool) -> None:
    """Between the first ranks of the hosts alone, and no link of them is spare: it is a tree."""
    places = hosts if shares_memory else list(range(len(hosts)))
    firsts = {places.index(host) for host in places}
    control = {(rank, peer) for rank, peer, role in _links(hosts, shares_memory) if role == Role.CONTROL}
    assert {rank for rank, _ in control} <= firsts and len(control) == 2 * (len(firsts) - 1)


@pytest.mark.parametrize("local_size", [1, 3, 16])
@pytest.mark.parametrize("hosts", [2, 4, 8, 9, 16, 64, 256])
def test_links_between_hosts_grow_with_the_logarithm_of_the_hosts(hosts: int, local_size: int) -> None:
    numbers = [rank // local_size for rank in range(hosts * local_size)]
    for rank in {0, 1, len(numbers) // 2, len(numbers) - 1}:
        links = at_start(rank, numbers, shares_memory=True)
        for role, most in ((Role.CONTROL, 8), (Role.DATA, 8), (Role.WATCH, 8)):
            count = hosts * local_size if role == Role.WATCH else hosts
            assert len([1 for _, of in links if of == role]) <= max(most, 2 * (count - 1).bit_length())


def test_a_rank_of_a_small_host_carries_the_lanes_of_several() -> None:
    links = {peer for peer, role in at_start(2, [0, 0, 1, 2, 2, 2], True) if role == Role.DATA}
    assert links == {0, 1, 3, 4, 5}
