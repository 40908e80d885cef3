"""Who dials whom: every host once, by few logins each, and in a tree that is no deeper than it must be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.nodes import tree
from horovod.runner.nodes.tree import Dialler


class _Job:
    """Brings hosts up in any order. ``reaches``: whether a relay reaches any."""

    def __init__(self, hosts: int, fan_out: int, chance: random.Random, reaches: bool = True) -> None:
        self.fan_out, self.depth = fan_out, tree.depth_for(hosts, fan_out)
        self.waiting = hosts
        self.diallers = [Dialler(0)]
        self.most_at_once = 0
        self._chance = chance
        self._reaches = reaches
        self._parents: dict[int, int] = {}
        self._logging_in: list[int] = []
        self._starting: list[int] = []

    def run(self) -> None:
        while self.waiting or self._logging_in or self._starting:
            while (
                self.waiting and (dialler := tree.choose(self.diallers, self.fan_out, self.depth)) is not None
            ):
                self._dial(dialler)
            assert self._logging_in or self._starting, "nobody dials, and nothing is under way"
            self._go_on()

    def _dial(self, dialler: int) -> None:
        by = self.diallers[dialler]
        assert by.is_up
        self.waiting -= 1
        by.hosts += 1
        by.logging_in += 1
        self.most_at_once = max(self.most_at_once, by.logging_in)
        self._parents[len(self.diallers)] = dialler
        self._logging_in.append(len(self.diallers))
        self.diallers.append(Dialler(by.depth + 1, is_up=False))

    def _go_on(self) -> None:
        """One event: a login is through, or has failed, or an agent is up."""
        events = self._logging_in + self._starting
        host = self._chance.choice(events)
        if host in self._starting:
            self._starting.remove(host)
            self.diallers[host].is_up = True
            return
        self._logging_in.remove(host)
        parent = self.diallers[self._parents[host]]
        parent.logging_in -= 1
        if parent.depth and not self._reaches:
            parent.hosts -= 1
            parent.is_able = False
            self.diallers[host].is_able = False
            self.waiting += 1
        else:
            self._starting.append(host)


@given(st.integers(1, 200), st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_host_is_dialled_once_in_a_flat_tree(hosts: int, fan_out: int, chance: random.Random) -> None:
    job = _Job(hosts, fan_out, chance)
    job.run()
    assert len(job.diallers) == 1 + hosts == 1 + sum(each.hosts for each in job.diallers)
    assert all(each.is_up for each in job.diallers)
    assert max(each.hosts for each in job.diallers[1:]) <= fan_out
    assert max(each.depth for each in job.diallers) <= job.depth <= tree.MOST_LEVELS
    if fan_out > 1:  # a chain may have no room for all
        assert job.diallers[0].hosts <= fan_out
    assert job.most_at_once <= tree.AT_ONCE
    if hosts <= fan_out:
        assert job.diallers[0].hosts == hosts


@given(st.integers(1, 60), st.integers(1, 9), st.randoms(use_true_random=False))
def test_relays_that_reach_nobody_leave_all_hosts_to_the_launcher(
    hosts: int, fan_out: int, chance: random.Random
) -> None:
    job = _Job(hosts, fan_out, chance, reaches=False)
    job.run()
    assert job.diallers[0].hosts == hosts and job.most_at_once <= tree.AT_ONCE


@pytest.mark.parametrize(
    ("hosts", "fan_out", "depth"),
    [
        (1, 32, 1),
        (32, 32, 1),
        (33, 32, 2),
        (1056, 32, 2),
        (1057, 32, 3),
        (7, 2, 3),
        (6, 2, 2),
        (5, 1, 5),
        (50, 1, 16),
    ],
)
def test_the_depth_is_the_least_that_has_room(hosts: int, fan_out: int, depth: int) -> None:
    assert tree.depth_for(hosts, fan_out) == depth
