"""What a driver gets to know when ranks, their processes or their nodes end: the first cause, at once."""

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray_programs as programs
from load import within

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.store.client import StoreClient
from horovod.ray import RayExecutor, failures
from horovod.ray.failures import RankFailedError

SECONDS = 2.0  # from the start of the sleep of 0.7 s on the rank that fails


@pytest.fixture
def executor(cluster: Any) -> Iterator[RayExecutor]:
    """Two ranks on two nodes, which have run something."""
    settings = RayExecutor.create_settings(timeout_s=within(30), placement_group_timeout_s=within(30))
    executor = RayExecutor(settings, num_hosts=2)
    executor.start()
    executor.run(programs.exchange, [0.1])
    yield executor
    executor.shutdown()


@pytest.mark.parametrize("how", ["kill", "exit"])
@pytest.mark.parametrize("others", ["exchange", "sleep"])
def test_a_rank_that_ends(executor: RayExecutor, how: str, others: str, capsys: Any) -> None:
    pid, host = executor.run(lambda: __import__("os").getpid())[1], hostname_of(executor, 1)
    begin = time.monotonic()
    with pytest.raises(RankFailedError) as caught:
        executor.run(programs.fails, [how, 1, others])
    assert time.monotonic() < begin + within(SECONDS)
    text = str(caught.value)
    assert text.startswith(f"rank 1 ({host}, pid {pid}) died\n"), text
    assert "connection" in text and "my last words" in text
    assert caught.value.rank == 1
    assert "[1]<stdout>:my last words" in capsys.readouterr().out


def hostname_of(executor: RayExecutor, rank: int) -> str:
    return str(executor.run(lambda: __import__("os").environ["HOROVOD_HOSTNAME"])[rank])


def test_a_function_that_raises_on_one_rank(executor: RayExecutor) -> None:
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="planted"):
        executor.run(programs.fails, ["raise", 1])
    assert time.monotonic() < begin + within(SECONDS)
    assert executor.run(programs.exchange, [0.1])[0] > 0  # the ranks live, and start again
    with pytest.raises(ZeroDivisionError, match="planted"):
        executor.run(programs.raises_early)
    assert executor.run(lambda: "next") == ["next"] * 2  # when the other has come to its end


def test_a_rank_that_ends_in_the_start(cluster: Any) -> None:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=within(30)), num_workers=3)
    executor.start()
    try:
        with pytest.raises(RankFailedError, match=r"^rank 2 \(.*\) died"):
            executor.run(programs.fails, ["start", 2])
    finally:
        executor.shutdown()


def test_what_ray_knows_of_an_end() -> None:
    said = "The actor is dead.\nWorker exit type: SYSTEM_ERROR Worker exit detail: {} \nmore"
    ended = "Worker exits unexpectedly. Worker exits with an exit code 3."
    guesses = " There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer."
    for text in (said.format(ended), said.format(ended + guesses), ended):
        assert failures._ended(RuntimeError(text)).rstrip() == ended


def test_a_node_that_is_lost(executor: RayExecutor, cluster: Any) -> None:
    other = cluster.worker_nodes and next(iter(cluster.worker_nodes))
    names = executor.run(lambda: __import__("os").environ["HOROVOD_HOSTNAME"])
    rank = next(rank for rank, name in enumerate(names) if name.endswith(other.node_id[:8]))
    references = executor.run_remote(programs.exchange, [60])
    assert executor.adapter is not None
    time.sleep(0.5)
    other.kill_raylet()
    begin = time.monotonic()
    try:
        with pytest.raises(RankFailedError, match=rf"^rank {rank} \({names[rank]}, pid \d+\) died"):
            executor.adapter._wait(references)
        assert time.monotonic() < begin + within(2.0)
    finally:
        cluster.remove_node(other, allow_graceful=False)


def test_strangers_are_turned_away(executor: RayExecutor, capsys: Any) -> None:
    assert executor.adapter is not None and executor.adapter._meeting is not None
    address, _ = executor.adapter._meeting.terms()
    first = address.split(",")[0]
    host, _, port = first.removeprefix("tcp:").rpartition(":")
    references = executor.run_remote(programs.exchange, [2])
    open_ones = []
    for _ in range(50):
        with contextlib.suppress(OSError):
            open_ones.append(socket.create_connection((host, int(port)), 1))
            open_ones[-1].sendall(secrets.token_bytes(40))
    with pytest.raises(BootstrapError):
        StoreClient(first, secrets.token_bytes(32), 0, 0, 0.5)
    assert min(executor.adapter._wait(references)) > 0
    for each in open_ones:
        each.close()
    executor.adapter._listener.catch_up()
    assert "horovod.ray: warning: " in capsys.readouterr().err
