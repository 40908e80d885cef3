"""The names of Horovod 0.28 that others import, Ray's own trainer of its first version among them."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from load import within

from horovod.ray.runner import Coordinator, MiniSettings, RayExecutor
from horovod.ray.settings import start_seconds
from horovod.ray.utils import detect_nics, nics_to_env_var
from horovod.runner.common.util import secret, settings, timeout
from horovod.runner.util.network import get_driver_ip

NAMES = """
horovod.ray: BaseHorovodWorker ElasticRayExecutor RayExecutor RayHostDiscovery ray_logger
horovod.ray.elastic: ElasticRayExecutor RayHostDiscovery
horovod.ray.elastic_v2: RayHostDiscovery
horovod.ray.runner: Coordinator MiniSettings RayExecutor
horovod.ray.strategy: create_placement_group
horovod.ray.utils: detect_nics nics_to_env_var
horovod.ray.worker: BaseHorovodWorker
horovod.runner.common.util: secret settings timeout
horovod.runner.common.util.secret: make_secret_key
horovod.runner.common.util.settings: BaseSettings Settings
horovod.runner.common.util.timeout: Timeout TimeoutException
horovod.runner.elastic.discovery: HostDiscovery
horovod.runner.elastic.driver: DISCOVER_HOSTS_FREQUENCY_SECS
horovod.runner.util.network: get_driver_ip
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_names(line: str) -> None:
    module, _, names = line.partition(":")
    for name in names.split():
        assert hasattr(importlib.import_module(module), name) or importlib.import_module(f"{module}.{name}")


def test_coordinator() -> None:
    coordinator = Coordinator(MiniSettings())
    for rank, node in enumerate("abaac"):
        coordinator.register("machine", node, rank)
    assert coordinator.world_size == 5 and coordinator.node_id_string == "a:3,b:1,c:1"
    assert len(coordinator.hostnames) == 3
    numbers = {rank: list(found.values()) for rank, found in coordinator.finalize_registration().items()}
    assert numbers == {0: [0, 3, 0, 3], 2: [1, 3, 0, 1], 3: [2, 3, 0, 1], 1: [0, 1, 1, 3], 4: [0, 1, 2, 3]}


def test_settings() -> None:
    limit = timeout.Timeout(0.0, "Timed out waiting for {activity}.")
    assert start_seconds(settings.Settings(start_timeout=timeout.Timeout(7.0, ""))) == 7.0
    assert start_seconds(RayExecutor.create_settings(timeout_s=8)) == 8.0
    assert start_seconds(settings.Settings()) == start_seconds(object()) == 30.0
    assert MiniSettings(timeout_s=9).start_timeout.remaining() <= 9.0
    time.sleep(0.001)
    assert limit.timed_out() and limit.remaining() == 0.0
    with pytest.raises(timeout.TimeoutException, match=r"waiting for Godot\."):
        limit.check_time_out_for("Godot")


def test_networks() -> None:
    assert nics_to_env_var(detect_nics(MiniSettings(nics={"lo"}))) == {"HOROVOD_NETWORK_INTERFACES": "lo"}
    assert nics_to_env_var(detect_nics(MiniSettings())) == {}
    assert get_driver_ip(["lo"]).startswith(("127.", "::1")) and get_driver_ip()
    with pytest.raises(RuntimeError, match="nothing0"):
        get_driver_ip(["nothing0"])
    assert len(secret.make_secret_key()) == 64 and secret.make_secret_key() != secret.make_secret_key()


PROGRAM = """
import os, sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.horovod import HorovodTrainer

def train():
    import ray.train
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects
    hvd.init()
    there = objects.allgather_object((hvd.local_size(), hvd.cross_size()))
    ray.train.report({"there": there})

ray.init(address=sys.argv[1], log_to_driver=False)
scaling = ScalingConfig(num_workers=2, placement_strategy="SPREAD", trainer_resources={"CPU": 0})
trainer = HorovodTrainer(train, scaling_config=scaling, run_config=RunConfig(storage_path=sys.argv[2]))
print("found", trainer.fit().metrics["there"])
"""


@pytest.mark.slow
def test_the_first_trainer_of_ray(cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray.train", reason="needs ray[train]")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.address, str(tmp_path)],
        env={**os.environ, "RAY_TRAIN_V2_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=within(100),
        check=False,
    )
    assert "found [(1, 2), (1, 2)]" in done.stdout, done.stdout + done.stderr
