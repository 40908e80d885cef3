"""Kill -9 of ranks, of their actors and of nodes, at any moment. For the figures of twenty kills each:

HVD_TEST_KILLS=20 pytest tests/ray/test_ray_kills.py -m "not full or full" --timeout 1200 -rP
"""

import os
import random
import re
import signal
import statistics
import time
from typing import Any

import psutil
import pytest
import ray_programs as programs
from load import within
from ray_programs import NODE
from running import Running

from horovod.ray import ElasticRayExecutor, RayExecutor
from horovod.ray.failures import RankFailedError

full, slow = pytest.mark.full, pytest.mark.slow
MEBIBYTES_64 = 64 << 18  # floats
TELL_SECONDS = 2.0
AGAIN_SECONDS = {"raylet": 10.0, "actor": 10.0}
TIMES = int(os.environ.get("HVD_TEST_KILLS", "1"))


def show(what: str, seconds: list[float]) -> None:
    numbers = f"median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s"
    print(f"{what}: {numbers}, {len(seconds)} kills")


@pytest.mark.parametrize("where", ["allreduce", pytest.param("step", marks=full), "start", "raylet"])
def test_one_error(cluster: Any, where: str) -> None:
    took = [told_after(cluster, where) for _ in range(TIMES)]
    show(f"RayExecutor, {where}", took)
    assert max(took) < within(TELL_SECONDS)


def told_after(cluster: Any, where: str) -> float:
    """Seconds until a job of two nodes ends with an error that names what was killed."""
    if not cluster.worker_nodes:
        cluster.add_node(**NODE)
    victim = next(iter(cluster.worker_nodes))
    settings = RayExecutor.create_settings(timeout_s=within(30), placement_group_timeout_s=within(30))
    executor = RayExecutor(settings, num_hosts=2)
    executor.start()
    try:
        ranks = executor.run(lambda: (os.environ["HOROVOD_HOSTNAME"], os.getpid()))
        rank = next(rank for rank, (name, _) in enumerate(ranks) if name.endswith(victim.node_id[:8]))
        if where == "start":
            rank = 1  # rank 0 comes late
        name, pid = ranks[rank]
        floats = MEBIBYTES_64 if where == "allreduce" else 1000
        job = Running(executor, programs.starts if where == "start" else programs.reduces, floats)
        if where != "start":
            job.wait_for(1)
        time.sleep(0.3 + random.random())
        if where == "raylet":
            victim.kill_raylet()
        else:
            os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        error = job.finish()
        seconds = time.monotonic() - begin
    finally:
        if where == "raylet":
            cluster.remove_node(victim, allow_graceful=False)
        executor.shutdown()
    assert isinstance(error, RankFailedError), error
    assert str(error).startswith(f"rank {rank} ({name}, pid {pid}) died\n"), error
    return seconds


@pytest.mark.parametrize(
    "where",
    [
        *(pytest.param(w, marks=full) for w in ("step", "start", "raylet", "allreduce")),
        pytest.param("actor", marks=slow),
    ],
)
def test_going_on(cluster: Any, tmp_path: Any, where: str, capsys: Any) -> None:
    cooldown = {"cooldown_range": [1, 1]}  # after kills in a row
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, timeout_s=within(30), **cooldown)
    floats = MEBIBYTES_64 if where == "allreduce" else 1000
    job = Running(ElasticRayExecutor(settings), programs.train_samples, str(tmp_path / "stop"), floats)
    job.wait_for(4, 60)
    took = [next_step_after(cluster, job, where, capsys) for _ in range(TIMES)]
    job.wait_for(4, 60)
    (tmp_path / "stop").touch()
    epochs = job.finish(60)
    show(f"ElasticRayExecutor, {where}", took)
    assert len(epochs) == 4 and epochs[0]
    assert set(map(str, epochs[0])) == {str([(sample, 1) for sample in range(programs.SAMPLES)])}
    steps = [value["step"] for value in job.logged]
    assert steps == sorted(steps)  # no commit is lost
    assert max(took) < within(AGAIN_SECONDS.get(where, 5.0))


def next_step_after(cluster: Any, job: Running, where: str, capsys: Any) -> float:
    """Seconds until the next step of a job without what is killed; waits until it has four ranks again."""
    there = job.wait_for(4, 60)["there"]
    time.sleep(random.random())
    victims = [there[-1]]
    if where == "actor":
        agent = psutil.Process(there[-1]).parent()
        assert agent is not None
        (actor,) = (each for each in agent.parents() if "HostActor" in " ".join(each.cmdline()))
        victims = [pid for pid in there if agent in psutil.Process(pid).parents()]
        actor.kill()
    elif where == "raylet":
        node = next(iter(cluster.worker_nodes))
        raylet = node.all_processes["raylet"][0].process
        victims = [pid for pid in there if raylet.pid in {p.pid for p in psutil.Process(pid).parents()}]
        node.kill_raylet()
    else:
        os.kill(victims[0], signal.SIGKILL)
    killed_at = time.time()
    if where == "start":  # the one that replaces it
        victims = [newcomer(capsys, there)]
        time.sleep(random.uniform(0, 0.3))
        os.kill(victims[0], signal.SIGKILL)
        killed_at = time.time()
    first = job.wait_without(victims)["time"] - killed_at
    if where == "raylet":
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(**NODE)
    return first


def newcomer(capsys: Any, there: list[int]) -> int:
    """The process of a rank that has just started."""
    end, seen = time.monotonic() + within(20), ""
    while time.monotonic() < end:
        seen += capsys.readouterr().out
        pids = set(map(int, re.findall(r"pid (\d+) starts", seen))) - set(there)
        alive = [pid for pid in pids if psutil.pid_exists(pid)]
        if alive:
            return alive[0]
        time.sleep(0.01)
    raise AssertionError("no rank has started")
