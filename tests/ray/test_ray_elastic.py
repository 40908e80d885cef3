"""Elastic jobs on a cluster whose ranks, actors and nodes end, and to which nodes come."""

import os
import signal
import threading
import time
from collections.abc import Collection
from typing import Any

import pytest
import ray
import ray_programs as programs
from load import within
from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
from ray_programs import NODE
from running import Running

from horovod.ray import ElasticRayExecutor, RayExecutor, RayHostDiscovery, hosts
from horovod.runner.elastic.discovery import HostDiscovery


def settings(**options: Any) -> Any:
    return ElasticRayExecutor.create_settings(timeout_s=within(30.5), **options)


def test_ranks_nodes_that_end_and_that_come(cluster: Any, tmp_path: Any) -> None:
    stop = tmp_path / "stop"
    job = Running(ElasticRayExecutor(settings(min_num_proc=1)), programs.train_until, str(stop))
    there = job.wait_for(4, 60)["there"]
    assert len({host for host, _ in there}) == 2

    os.kill(there[3][1], signal.SIGKILL)  # only this one is replaced
    pids = {pid for _, pid in there}
    killed_at = time.time()
    first = job.wait_for(4)
    assert len({pid for _, pid in first["there"]} & pids) in (3, 4)
    while {pid for _, pid in first["there"]} == pids:
        first = job.wait_for(4)
    assert {pid for _, pid in first["there"]} & pids == pids - {there[3][1]}
    assert first["time"] < killed_at + within(5)

    lost = next(iter(cluster.worker_nodes))
    lost.kill_raylet()
    killed_at = time.time()
    assert job.wait_for(2)["time"] < killed_at + within(10)
    cluster.remove_node(lost, allow_graceful=False)
    cluster.add_node(**NODE)
    job.wait_for(4, 60)
    stop.touch()
    assert [numbers[:2] for numbers in job.finish()] == [(rank, 4) for rank in range(4)]
    job.check_steps()


@pytest.mark.slow
def test_a_node_that_ray_drains(cluster: Any, tmp_path: Any) -> None:
    job = Running(ElasticRayExecutor(settings(min_num_proc=1)), programs.train_until, str(tmp_path / "stop"))
    job.wait_for(4, 60)
    node = next(iter(cluster.worker_nodes))
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline = int((time.time() + within(60)) * 1000)
    client = GcsClient(address=cluster.address)
    assert client.drain_node(node.node_id, reason, "a test", deadline)[0]
    assert not {host for host, _ in job.wait_for(2)["there"] if host.endswith(node.node_id[:8])}
    seen = len(job.logged)
    time.sleep(1.0)
    assert {len(value["there"]) for value in job.logged[seen:]} == {2}
    cluster.remove_node(node, allow_graceful=False)
    (tmp_path / "stop").touch()
    assert [numbers[:2] for numbers in job.finish()] == [(0, 2), (1, 2)]
    steps = [value["step"] for value in job.logged]
    assert steps == list(range(len(steps)))  # none is made twice


def test_an_executor_with_a_range_of_ranks(cluster: Any) -> None:
    executor = RayExecutor(RayExecutor.create_settings(within(30)), min_workers=1, max_workers=2)
    executor.start(programs.Model, [10], {"bias": 1}, extra_env_vars={"MY_VARIABLE": "mine"})
    own = executor.run(lambda n: (n, os.environ["MY_VARIABLE"], os.environ["OMP_NUM_THREADS"]), [3])
    assert own == [(3, "mine", "1")] * 2
    assert executor.execute(lambda model: model.rank()) == [1, 11]
    for refused in (executor.run_remote, executor.execute_single):
        with pytest.raises(NotImplementedError, match="elastic"):
            refused(programs.identity)
    executor.shutdown()


class Chosen(HostDiscovery):
    """One node, with one slot; then nothing but an error; then all, with one slot each."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes
        self._looks = 0

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        self._looks += 1
        if self._looks == 2:
            raise ValueError("planted")
        return dict.fromkeys(self._nodes[: self._looks], 1)


def test_nodes_that_the_user_finds(cluster: Any, alive: Any, tmp_path: Any, capsys: Any) -> None:
    own = settings(min_num_proc=1, discovery=Chosen(list(alive)))
    executor = ElasticRayExecutor(own, env_vars={"MY_VARIABLE": "mine"}, override_discovery=False)
    job = Running(executor, programs.train_until, str(tmp_path / "stop"))
    job.wait_for(2)
    (tmp_path / "stop").touch()
    assert [(rank, size, mine) for rank, size, _, mine in job.finish()] == [(0, 2, "mine"), (1, 2, "mine")]
    assert capsys.readouterr().err.count("the nodes stay as they were: ValueError: planted") == 1


def test_a_discovery_that_hangs_does_not_outlive_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.nodes, "alive", dict)
    monkeypatch.setattr(hosts, "_CLOSE_SECONDS", 0.2)
    looks, hangs, goes_on = 0, threading.Event(), threading.Event()

    def find(busy: Collection[str]) -> dict[str, int]:
        nonlocal looks
        looks += 1
        if looks > 1:
            hangs.set()
            goes_on.wait()
        return {}

    found = hosts.Hosts(find, hosts.Terms("", b"", {}, 1, 0))
    assert found.begin(0) == 0
    assert hangs.wait(within(10))
    closing = threading.Thread(target=found.close, daemon=True)
    closing.start()
    closing.join(within(10))
    assert not closing.is_alive()
    goes_on.set()
    found._thread.join(within(10))
    assert not found._thread.is_alive() and looks == 2


@pytest.mark.slow
def test_a_node_that_others_use(cluster: Any, tmp_path: Any) -> None:
    other = ray.remote(num_cpus=1)(programs.Model).remote(1)
    ray.get(other.__ray_ready__.remote())
    job = Running(ElasticRayExecutor(settings(min_num_proc=1)), programs.train_until, str(tmp_path / "stop"))
    job.wait_for(3, 60)
    (tmp_path / "stop").touch()
    assert len(job.finish()) == 3
    ray.kill(other)


def test_discovery(cluster: Any) -> None:
    found = RayHostDiscovery().find_available_hosts_and_slots()
    assert sum(found.values()) == 4 and set(found) == {cluster.head_node.node_ip_address}
    assert sum(RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots().values()) == 2
    assert RayHostDiscovery(use_gpu=True).find_available_hosts_and_slots() == {}
