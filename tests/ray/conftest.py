"""A Ray cluster of two nodes on this machine, of two CPUs each."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

# Before Ray is imported. A new cluster would write a token into the user's home otherwise.
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
import cloudpickle
import psutil
import ray
import ray_programs
from load import within
from ray.cluster_utils import Cluster

from horovod.bootstrap.network import endpoints

# Ranks do not find the modules of tests.
for pickler in (cloudpickle, ray.cloudpickle):
    pickler.register_pickle_by_value(ray_programs)

_HEALTH = {"initial_delay_ms": 0, "period_ms": 500, "failure_threshold": 2}
START_SECONDS, TRIES = 60, 3


@pytest.fixture(scope="session")
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Makes it when a test asks for the first node."""
    # A folder of its own, as others may test beside; its sockets have no long names.
    # The last processes of a cluster may write while it is removed.
    own = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch, own as folder:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("RAY_TMPDIR", folder)
        settings = {f"health_check_{name}": value for name, value in _HEALTH.items()}
        head = {**ray_programs.NODE, "include_dashboard": False, "_system_config": settings}
        head["dashboard_agent_listen_port"] = endpoints.free_port()
        cluster = _begun(head)
        try:
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def _begun(head: dict[str, Any]) -> Any:
    """A cluster of one node. Ray waits 30 s for it, on a busy machine too, and leaves what it started."""
    for _ in range(TRIES - 1):
        before = set(psutil.Process().children())
        try:
            return Cluster(initialize_head=True, head_node_args=head)
        except (Exception, SystemExit):
            for process in set(psutil.Process().children()) - before:
                process.kill()
    return Cluster(initialize_head=True, head_node_args=head)


@pytest.fixture
def cluster(new_cluster: Any) -> Any:
    """Two nodes, and this process as a driver, whatever the test before has done to them."""
    for _ in range(TRIES):
        with contextlib.suppress(SystemExit):  # of Ray, where a busy machine starts no node in time
            if not new_cluster.worker_nodes:
                new_cluster.add_node(**ray_programs.NODE)
    new_cluster.wait_for_nodes(within(START_SECONDS))
    if not ray.is_initialized():
        ray.init(address=new_cluster.address, log_to_driver=False)
    return new_cluster


@pytest.fixture
def alive(cluster: Any) -> dict[str, Any]:
    """The nodes of Ray, by their id."""
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
