"""The system refuses the launcher something in its loop: the ranks end in good order, with the cause."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod.bootstrap.store.server import StoreServer
from horovod.runner import supervisor as supervisor_module
from horovod.runner.elastic.worker_output import KeptFile
from horovod.runner.ending import Ending, Exit
from horovod.runner.file_writer import FileWriter
from horovod.runner.nodes.node import STREAMS
from horovod.runner.output import Display
from horovod.runner.rank_output import RankOutput
from horovod.runner.sink import Sink
from horovod.runner.supervisor import Supervisor

REFUSED = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Host:
    """Two ranks, which end when they are asked to, or killed."""

    host = "here"
    stopped = ()
    is_finished = True

    def __init__(self, heeds: int) -> None:
        self.heeds = heeds
        self.signals: list[int] = []
        self.events: Any = None

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == self.heeds:
            self.events.ended([Exit(rank, -number) for rank in range(2)])
            for rank in range(2):
                for stream in STREAMS:
                    self.events.output(rank, stream, b"")

    def find_stopped(self) -> None:
        pass

    finish = abandon = find_stopped


class Loop:
    """Refuses the first so many steps."""

    def __init__(self, refusals: float) -> None:
        self.left = refusals

    def on_signal(self, number: int) -> None:
        pass

    def step(self, until: float, nodes: object) -> None:
        self.left -= 1
        if self.left >= 0:
            raise REFUSED
        time.sleep(max(0.0, min(until - time.monotonic(), 0.05)))


class Store:
    """Knows nothing."""

    def late(self) -> None:
        return None

    def ranks_ended(self, ranks: object) -> None:
        pass

    def verdicts(self, ended: object, seconds: float) -> list[object]:
        return []

    def remarks(self, size: int) -> list[str]:
        return []


class Policy:
    """An elastic job that goes on as long as it may."""

    is_open = True

    def ended(self, exits: object) -> None:
        pass

    def tend(self, now: float) -> float:
        if self.is_open:
            raise REFUSED
        return float("inf")

    def stop(self) -> None:
        self.is_open = False

    def report(self) -> bytes:
        raise AssertionError("the job has not failed by itself")


@pytest.fixture
def sink() -> Iterator[tuple[Sink, int]]:
    read, write = os.pipe()
    made = Sink(write, lambda: None)
    yield made, read
    made.close()
    os.close(read)
    os.close(write)


def run(sink: Sink, host: Host, loop: Loop, policy: Policy | None = None) -> int:
    outputs = {(rank, name): RankOutput(sink, None) for rank in range(2) for name in STREAMS}
    ending = Ending(grace=0.2)
    made = Supervisor(loop, [sink, sink], outputs, ["here"] * 2, Store(), ending=ending)  # type: ignore[arg-type]
    host.events = made
    return made.run([host], policy)  # type: ignore[list-item, arg-type]


@pytest.mark.parametrize("refusals", [1, 3])
@pytest.mark.parametrize("heeds", [signal.SIGTERM, signal.SIGKILL])
def test_the_ranks_are_ended_in_good_order(sink: tuple[Sink, int], refusals: int, heeds: int) -> None:
    host = Host(heeds)
    assert run(sink[0], host, Loop(refusals)) == 1
    assert host.signals == [signal.SIGTERM, signal.SIGKILL][: 1 + (heeds == signal.SIGKILL)]
    told = os.read(sink[1], 4096).decode()
    assert told.count("\n") == 1 and "horovodrun cannot go on: [Errno 24] Too many open files" in told
    assert "ulimit -n" in told and told.endswith("; ending all ranks\n")


def test_an_elastic_job_starts_nothing_more(sink: tuple[Sink, int]) -> None:
    host, policy = Host(signal.SIGTERM), Policy()
    assert run(sink[0], host, Loop(0), policy) == 1
    assert not policy.is_open and host.signals == [signal.SIGTERM]


def test_what_is_refused_for_ever_ends_the_launcher(
    sink: tuple[Sink, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_REFUSED_SECONDS", 0.2)
    host = Host(0)
    with pytest.raises(OSError, match="Too many open files"):
        run(sink[0], host, Loop(float("inf")))
    assert host.signals == [signal.SIGTERM, signal.SIGKILL]


def test_a_file_that_fails_when_it_is_closed_is_told(sink: tuple[Sink, int]) -> None:
    class Kept:
        name = "logs/rank.0/stdout"

        def write(self, data: memoryview) -> int:
            return len(data)

        def close(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = FileWriter([], lambda: None, sink[0])
    output = RankOutput(sink[0], Display(False).prefixer(0, "stdout", False), writer.queued(Kept()))
    output.feed(b"text\n")
    output.end()
    told = b""
    while told.count(b"\n") < 2:
        told += os.read(sink[1], 4096)
    assert b"warning: logs/rank.0/stdout: No space left on device; no more is kept there" in told


def test_a_file_that_is_refused_is_told_with_the_reason(sink: tuple[Sink, int], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "worker.5").symlink_to(tmp_path / "elsewhere")
    writer = FileWriter([], lambda: None, sink[0])
    output = RankOutput(sink[0], None, writer.queued(KeptFile(str(tmp_path), "worker.5", "stdout")))
    output.feed(b"text\n")
    output.end()
    writer.close()
    assert (
        "worker.5 is a symbolic link, or no folder; no more is kept there" in os.read(sink[1], 4096).decode()
    )
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_store_without_a_thread_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(os.listdir("/proc/self/fd"))
    server = StoreServer(bytes(32), 2)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="can't start new thread") as caught:
        patch.setattr(threading.Thread, "start", refuse)
        server.start()
    assert caught.value.errno == errno.EAGAIN
    server.close()
    assert len(os.listdir("/proc/self/fd")) <= before
