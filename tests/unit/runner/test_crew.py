"""The workers of an elastic job as its launcher starts and forgets them, on hosts that are not there."""

import errno
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.runner.elastic import crew as crew_module
from horovod.runner.elastic.chaos import parse
from horovod.runner.elastic.crew import Crew
from horovod.runner.nodes.agent import Agent
from horovod.runner.nodes.channel import Tag
from horovod.runner.nodes.node import STREAMS
from horovod.runner.nodes.remote import RemoteNode
from horovod.runner.rank_output import RankOutput
from horovod.runner.sink import Sink


class Host(RemoteNode):
    """Never answers."""

    def __init__(self, host: str, error: OSError | None = None) -> None:
        self.host = host
        self.greeting = self.failure = None
        self._is_lost = False
        self._error = error
        self.signals: list[int] = []
        self.is_closed = False

    def dial(self, relay: object) -> None:
        if self._error is not None:
            raise self._error

    def wants_to_dial(self, now: float) -> bool:
        return False

    def signal_one(self, rank: int, number: int) -> None:
        self.signals.append(rank)

    def close(self) -> None:
        self.is_closed = True


class Outputs:
    """Of nobody's interest."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def new(self, worker: int, stream: str) -> RankOutput:
        return RankOutput(self._sink, None)

    def name(self, output: RankOutput, worker: int, stream: str, rank: int | None) -> None:
        pass


class Desk:
    """A crew, and all that it is given."""

    def __init__(self, sink: Sink) -> None:
        self.error: OSError | None = None
        self.wakes = 0
        self.crew = Crew(
            lambda host: (Host(host, self.error),) * 2,
            Outputs(sink),  # type: ignore[arg-type]
            lambda node: None,
            lambda host: 1,
            30.0,
            self._wake,
        )

    def _wake(self) -> None:
        self.wakes += 1


@pytest.fixture
def desk() -> Iterator[Desk]:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    sink = Sink(descriptor, lambda: None)
    yield Desk(sink)
    sink.close()
    os.close(descriptor)


def test_a_job_that_ends_does_not_wait_for_hosts_that_are_being_reached(desk: Desk) -> None:
    desk.crew.start(0, "far")
    assert not any(output.is_ended for output in desk.crew.outputs.values())
    desk.crew.stop()
    assert all(output.is_ended for output in desk.crew.outputs.values())
    assert desk.crew.take_failed(1e9) == [] and desk.crew.next_time() == float("inf")


def test_where_ssh_cannot_be_started_the_worker_has_failed(desk: Desk) -> None:
    desk.error = OSError(errno.EMFILE, "Too many open files")
    desk.crew.start(0, "far")
    assert desk.wakes
    (exit,) = desk.crew.take_failed(0.0)
    assert exit.rank == 0 and "Too many open files" in exit.lost
    assert desk.crew.nodes == []
    desk.crew.signal(0, 9)  # nobody gets it


def test_a_host_that_is_reached_again_and_again_has_one_node(desk: Desk) -> None:
    for worker in range(5):
        desk.crew.start(worker, "far")
        (node,) = desk.crew.nodes
        assert not node.is_closed
        node._is_lost = True
        desk.crew._forget("far")
    desk.crew.start(5, "far")
    assert node.is_closed and desk.crew.nodes != [node] and len(desk.crew.nodes) == 1


def test_what_workers_wrote_is_forgotten_after_a_while(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "_KEPT", 3)
    held = 1  # a process that it has left behind writes still
    for worker in range(10):
        desk.crew.start(worker, "far")
    for worker in (5, 4, 3, 2, 1, 0, 6, 7):
        for name in STREAMS:
            desk.crew.outputs[worker, name].feed(b"last words of %d\n" % worker)
            if worker != held:
                desk.crew.outputs[worker, name].end()
        desk.crew.ended(worker)
    assert {worker for worker, _ in desk.crew.outputs} == {1, 0, 6, 7, 8, 9}
    assert desk.crew.evidence(5, 4) == []
    assert desk.crew.evidence(0, 4) == ["the last lines of worker 0 on stderr:", "  last words of 0"]


def test_an_agent_says_which_variable_of_its_host_cannot_be_used() -> None:
    frames: list[tuple[Any, ...]] = []

    def refuse(said: object) -> bytes:
        raise ValueError("HOROVOD_PREEMPTION_SIGNAL: 'KILL' is no signal")

    agent = Agent.__new__(Agent)
    agent._carrier = SimpleNamespace(job_secret=refuse)  # type: ignore[assignment]
    agent._channel = SimpleNamespace(send=lambda *frame: frames.append(frame))  # type: ignore[assignment]
    agent._start({"placements": []})
    assert frames == [(Tag.REFUSED, ["HOROVOD_PREEMPTION_SIGNAL: 'KILL' is no signal", 1])]


def test_a_worker_that_an_agent_cannot_start_has_no_output_to_wait_for() -> None:
    frames: list[tuple[Any, ...]] = []
    agent = Agent.__new__(Agent)
    agent._room = dict.fromkeys(STREAMS, 1)
    agent._channel = SimpleNamespace(
        send=lambda tag, said: frames.append((tag, said)),
        send_bytes=lambda tag, number, stream, data: frames.append((tag, number, stream, data)),
    )  # type: ignore[assignment]

    def refuse(number: int, variables: object, slots: int) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    agent._start_worker(SimpleNamespace(start_worker=refuse), 7, {}, 1)  # type: ignore[arg-type]
    assert frames[:2] == [(Tag.OUTPUT, 7, 0, b""), (Tag.OUTPUT, 7, 1, b"")]
    assert frames[2][0] == Tag.ENDED


def test_chaos_waits_for_ranks_and_keeps_nobody_busy() -> None:
    chaos = parse("kill:every=2s,rank=1")
    for now in (100.0, 103.0):
        assert chaos.choose([], now) is None
        assert chaos.next_time() > now
    assert chaos.choose([0, 1], 104.0) is None
    due = chaos.next_time()
    assert 105.0 <= due <= 106.0
    assert chaos.choose([0, 1], due) == 1
    assert chaos.next_time() > due
