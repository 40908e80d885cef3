"""RayExecutor: actors that are ranks, on a cluster of two nodes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray_programs as programs
from load import within

from horovod.bootstrap.network import endpoints
from horovod.ray import RayExecutor
from horovod.ray.static import StaticJob
from horovod.ray.strategy import Strategy


@pytest.fixture
def start(cluster: Any) -> Iterator[Callable[..., RayExecutor]]:
    """Starts executors, which end with the test."""
    started: list[RayExecutor] = []

    def new(executable: Any = None, variables: Any = None, **options: Any) -> RayExecutor:
        settings = RayExecutor.create_settings(timeout_s=within(30), placement_group_timeout_s=within(30))
        started.append(RayExecutor(settings, **options))
        started[-1].start(*(executable or ()), extra_env_vars=variables)
        return started[-1]

    yield new
    for executor in started:
        executor.shutdown()


def test_ranks_of_two_hosts(start: Any, alive: Any, capsys: Any, tmp_path: Path) -> None:
    executor = start(num_hosts=2, num_workers_per_host=2, variables={"MY_VARIABLE": "mine"})
    results = executor.run(programs.identity)
    assert [numbers for numbers, *_ in results] == [
        [0, 4, 0, 2, 0, 2],
        [1, 4, 1, 2, 0, 2],
        [2, 4, 0, 2, 1, 2],
        [3, 4, 1, 2, 1, 2],
    ]
    environments = [environment for *_, environment in results]
    assert {environment["MY_VARIABLE"] for environment in environments} == {"mine"}
    assert environments[0]["HOROVOD_HOSTNAME"] != environments[2]["HOROVOD_HOSTNAME"]
    shown = capsys.readouterr()
    for rank in range(4):  # each line, although Ray takes them for one
        assert f"[{rank}]<stdout>:rank {rank} says something\n" in shown.out
        assert f"[{rank}]<stderr>:rank {rank} complains\n" in shown.err
    assert ray.get(executor.run_remote(programs.exchange, [0.2]))[0] > 0
    assert [pid for _, pid, _ in executor.run(programs.identity)] == [pid for _, pid, _ in results]
    check_secret_is_hidden(executor, [pid for _, pid, _ in results])


def check_secret_is_hidden(executor: RayExecutor, pids: list[int]) -> None:
    assert executor.adapter is not None and executor.adapter._meeting is not None
    _, secret = executor.adapter._meeting.terms()
    forms = secret, secret.hex().encode(), repr(secret)[2:-1].encode()
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    seen = [path for path in session.rglob("*") if path.is_file()]
    seen += [Path(f"/proc/{pid}/{name}") for pid in [*pids, os.getpid()] for name in ("environ", "cmdline")]
    assert len(seen) > 20
    for path in seen:
        assert not any(form in path.read_bytes() for form in forms), path
    for _, _, environment in executor.run(programs.identity):
        assert not any("SECRET" in name for name in environment)


def test_what_ranks_return_and_log(start: Any, capsys: Any) -> None:
    executor = start(num_workers=2)
    count = 4 << 20
    for rank, array in enumerate(executor.run(programs.arrays, kwargs={"count": count})):
        assert array.shape == (count,) and (array == rank).all()
    heard: list[Any] = []
    executor.run(programs.logged, [7], callbacks=[heard.append])
    assert heard.count({"step": 7, "by": "0"}) == 1
    assert {"rank": "0"} in heard and {"rank": "1"} in heard and len(heard) == 3
    assert "[1]<stdout>:without a newline\n" in capsys.readouterr().out
    assert executor.run(programs.logs_unreadable) == ["returned"] * 2
    with pytest.raises(ValueError, match="no number"):
        executor.run(programs.logs_unreadable, callbacks=[heard.append])
    executor.run(programs.logged, [8], callbacks=[heard.append])
    assert {"step": 8, "by": "0"} in heard


def test_executable(start: Any) -> None:
    executor = start((programs.Model, [10], {"bias": 1}), num_workers=3)
    assert executor.execute(lambda model: model.rank()) == [1, 11, 21]
    assert executor.execute_single(lambda model: model.weight) == 10
    ray.shutdown()  # too early
    executor.shutdown()
    assert executor.workers == [] and not ray.is_initialized()
    with pytest.raises(RuntimeError, match=r"start\(\) first"):
        executor.run(programs.identity)


def test_what_ranks_leave_behind_ends_with_them(start: Any) -> None:
    executor = start(num_workers=1)
    pid = executor.run(programs.child)[0]
    assert Path(f"/proc/{pid}").exists()
    executor.shutdown()
    end = time.monotonic() + within(5)
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_placement_group_of_the_caller(cluster: Any) -> None:
    group = ray.util.placement_group([{"CPU": 1}] * 3, strategy="PACK")
    where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
        group, placement_group_capture_child_tasks=True
    )

    @ray.remote(num_cpus=1, scheduling_strategy=where)
    def driver() -> Any:
        settings = RayExecutor.create_settings(placement_group_timeout_s=1)
        with pytest.raises(TimeoutError, match=r"no room for \d of 4 ranks .* \[\{'CPU': 1.0\}, "):
            RayExecutor(settings, num_workers=4).start()
        executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
        executor.start()
        assert executor.adapter is not None
        created = executor.adapter.strategy._created_placement_group
        results = executor.run(programs.identity)
        executor.shutdown()
        return created, [numbers[:2] for numbers, *_ in results]

    assert ray.get(driver.remote()) == (None, [[0, 2], [1, 2]])
    ray.util.remove_placement_group(group)


def test_too_few_resources(cluster: Any) -> None:
    executor = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=9)
    with pytest.raises(TimeoutError, match=r"9 bundles of \{'CPU': 1\}.* available are .*'CPU': 4.0"):
        executor.start()
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        executor.start()
    groups = ray.util.placement_group_table().values()
    assert "PENDING" not in {group["state"] for group in groups}


def test_too_few_nodes(cluster: Any) -> None:
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    executor = RayExecutor(settings, num_hosts=3, num_workers_per_host=1)
    with pytest.raises(TimeoutError, match=r"each on a node of its own\), .* nodes: 2\."):
        executor.start()


CLIENT = """
import sys
import ray
from horovod.ray import ElasticRayExecutor, RayExecutor
ray.init(sys.argv[1])

def rank():
    from horovod.common import basics as hvd
    from horovod.ray import ray_logger
    hvd.init()
    ray_logger.log({"logged": hvd.size()})
    print("I am", hvd.rank())
    return hvd.rank()

executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
executor.start()
print(executor.run(rank, callbacks=[print]))
executor.shutdown()
executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2, max_num_proc=2))
executor.start()
print("elastic", executor.run(rank, callbacks=[print]))
try:
    executor.run(lambda: 1 / 0)
except ZeroDivisionError:
    print("as it should be")
"""


@pytest.fixture
def client_server(cluster: Any) -> Iterator[str]:
    """The address for drivers outside of the cluster.

    This server serves them itself. That of a cluster starts another for each of them, which gives up
    on a busy machine, and then no driver is served any more.
    """
    port = endpoints.free_port()
    words = ["--address", cluster.address, "--host", "127.0.0.1", "--port", str(port), "--mode", "legacy"]
    server = subprocess.Popen([sys.executable, "-m", "ray.util.client.server", *words])
    try:
        limit = time.monotonic() + within(60)
        while not _listens(port):
            assert server.poll() is None and time.monotonic() < limit
            time.sleep(0.1)
        yield f"ray://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_driver_outside_of_the_cluster(client_server: str) -> None:
    words = [sys.executable, "-c", CLIENT, client_server]
    done = subprocess.run(words, capture_output=True, text=True, timeout=within(90), check=False)
    lines = done.stdout.splitlines()
    assert "[0, 1]" in lines and "elastic [0, 1]" in lines and lines[-1] == "as it should be", done
    for told in ("[0]<stdout>:I am 0", "[1]<stdout>:I am 1", "{'logged': 2}"):
        assert lines.count(told) == 2, done


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "num_workers, or num_hosts"),
        ({"num_workers": 2, "num_hosts": 1}, "exclude each other"),
        ({"num_workers": 0}, "at least 1 rank"),
        ({"num_workers": 2, "gpus_per_worker": 1}, "use_gpu=True"),
        ({"num_workers": 2, "gpus_per_worker": 0, "use_gpu": True}, "at least 1"),
        ({"num_hosts": 2, "min_workers": 1}, "elastic"),
    ],
)
def test_numbers_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RayExecutor(RayExecutor.create_settings(), **options)


@pytest.mark.parametrize("kind", ["call", "execute"])
def test_threads_call_all_ranks_in_one_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one rank would be in the call of one thread while another is in that of another."""
    calls: list[list[Any]] = [[], []]
    job = StaticJob(Strategy(2, 1, 0, 1.0), {}, 1.0)
    job.workers = [SimpleNamespace(**{kind: SimpleNamespace(remote=of_rank.append)}) for of_rank in calls]
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(job, "_wait", lambda references, callbacks: references)

    def call(number: int) -> None:
        if kind == "call":
            job.run_remote(len, [number], {})
        else:
            job.execute(lambda _: number, ())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(call, range(5000)))
    finally:
        sys.setswitchinterval(interval)
    assert calls[0] == calls[1] and len(calls[0]) == 5000
