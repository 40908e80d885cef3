"""Hosts are dialled a few at a time, and left all at once; both without ssh."""

import time

import pytest
from load import within

from horovod.runner.nodes import reach, tree


class _Node:
    """Logs in when it is told to."""

    def __init__(self, number: int) -> None:
        self.host = f"n{number}"
        self.greeting: object | None = None
        self.failure: str | None = None
        self.delay = "" if number % 2 else "it sleeps"
        self.route = self
        self.depth, self.is_able, self.relay, self.refusal = 1, True, None, ""
        self.is_dialled = self.is_in = self.has_left = self.is_left = self.is_closed = False

    @property
    def is_greeted(self) -> bool:
        return self.greeting is not None

    def wants_to_dial(self, now: float) -> bool:
        return not self.is_dialled

    def is_logging_in(self, now: float) -> bool:
        return self.is_dialled and not self.is_in

    def dial(self, relay: "_Node | None") -> None:
        self.is_dialled, self.relay, self.depth = True, relay, 1 if relay is None else relay.depth + 1

    def leave(self, status: int) -> None:
        self.is_left = True

    def close(self) -> None:
        self.is_closed = True


class _Loop:
    """Lets one more node in at each step, and greet two steps later."""

    def __init__(self, nodes: list[_Node], lets_in: bool = True) -> None:
        self.on_signal = lambda number: None
        self.most = 0
        self._nodes = nodes
        self._lets_in = lets_in

    def step(self, until: float, nodes: list[_Node]) -> None:
        self.most = max(self.most, sum(node.is_logging_in(0.0) for node in self._nodes))
        time.sleep(0.005)
        for node in [each for each in self._nodes if each.is_in and each.greeting is None][2:]:
            node.greeting = "hello"
        waiting = [node for node in self._nodes if node.is_logging_in(0.0)]
        for node in waiting[: self._lets_in]:
            node.is_in = True
        if not waiting:
            for node in self._nodes:
                node.greeting = "hello"


def test_no_more_log_in_at_a_time_than_sshd_takes() -> None:
    nodes = [_Node(number) for number in range(40)]
    loop = _Loop(nodes)
    reach.greet(loop, nodes, 30.0)  # type: ignore[arg-type]
    assert all(node.greeting for node in nodes) and loop.most == tree.AT_ONCE < 10


def test_of_many_hosts_those_that_nobody_can_dial_yet_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each event costs hosts times hosts, with which a start of a thousand is late."""
    nodes = [_Node(number) for number in range(400)]
    asked = 0
    choose = tree.choose

    def counted(*arguments: object) -> int | None:
        nonlocal asked
        asked += 1
        return choose(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tree, "choose", counted)
    nodes[399].refusal = "a relay could not reach it"
    nodes[399].is_able = False
    reach._dial(nodes, 2)  # type: ignore[arg-type]
    assert nodes[399].is_dialled and nodes[399].relay is None  # by the launcher, whatever the others wait for
    assert sum(node.is_dialled for node in nodes) == 3
    assert asked == 4


def test_late_hosts_are_named_with_the_reason() -> None:
    nodes = [_Node(number) for number in range(4)]
    with pytest.raises(reach.ReachError) as error:
        reach.greet(_Loop(nodes, lets_in=False), nodes, 0.05)  # type: ignore[arg-type]
    first, second = str(error.value).splitlines()
    assert first == "n0, n2: no agent came up within 0.05 s (--start-timeout); it sleeps"
    assert second == "n1, n3: no agent came up within 0.05 s (--start-timeout)"


def test_hosts_that_do_not_let_go_cost_one_second_together() -> None:
    nodes = [_Node(number) for number in range(20)]
    begin = time.monotonic()
    reach.part(_Loop(nodes), nodes)  # type: ignore[arg-type]
    assert time.monotonic() - begin < within(3.0)
    assert all(node.is_left and node.is_closed for node in nodes)
