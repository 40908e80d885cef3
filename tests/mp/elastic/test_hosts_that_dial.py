"""Elastic jobs on hosts that dial the launcher: they come, come back, and go."""

import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import networks
import pytest
from launch import PROGRAMS
from pods import Pods, break_connection, running
from running_job import all_train, wait_for

REASON = networks.why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with running(tmp_path) as made:
        yield made


def test_an_elastic_job_grows_and_shrinks_with_those_who_dial(pods: Pods, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 1)]
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "400", "never", "-1", "64", "0.05"]
    job = pods.lead("-np", "2", "--min-np", "1", "--host-timeout", "2", "-x", f"HVD_TEST_LOG={log}", *steps)
    wait_for(all_train(2), log)
    agents.append(pods.join(2, "--slots", "1"))
    wait_for(all_train(3), log)
    break_connection(pods.hosts.nodes[2])
    pods.signal(agents[1], signal.SIGKILL)
    wait_for(lambda text: "of 2 " in text.partition(" of 3 ")[2], log)
    result = pods.finish(job, 60)
    assert result.returncode == 0 and "pod-1" in result.output, result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [0, -signal.SIGKILL, 0]


def test_a_pod_that_is_asked_to_end_hands_over_at_a_commit(pods: Pods, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 1)]
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "60", "never", "-1", "64", "0.05"]
    job = pods.lead("-np", "2", "--min-np", "1", "--grace", "20", "-x", f"HVD_TEST_LOG={log}", *steps)
    wait_for(all_train(2), log)
    pods.signal(agents[1], signal.SIGTERM)
    assert pods.finish(agents[1], 20).returncode == 128 + signal.SIGTERM
    result = pods.finish(job, 60)
    assert result.returncode == 0 and "pod-1 is about to go: its workers leave" in result.output
    assert "killed" not in result.output and "error" not in log.read_text(), result.output + log.read_text()
    assert pods.finish(agents[0], 5).returncode == 0


@pytest.mark.parametrize("number", (signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)))
def test_a_launcher_pod_that_restarts_goes_on_from_the_checkpoint(
    pods: Pods, tmp_path: Path, number: signal.Signals
) -> None:
    steps = [sys.executable, str(PROGRAMS / "durable_steps.py"), "80", "64", "0.05"]
    options = ["-np", "2", "--min-np", "1", "--checkpoint-dir", str(tmp_path / "state")]
    agents = [pods.join(pod, "--slots", "1", HOROVOD_HOST_TIMEOUT="2") for pod in (0, 1)]
    first = pods.lead(*options, *steps)
    assert first.stdout is not None and b"begins at step 0" in first.stdout.readline()
    time.sleep(1.0)
    first.send_signal(number)
    pods.finish(first, 20)
    assert all(pods.finish(agent, 20).returncode > 0 for agent in agents)  # so their pods are started anew
    pods.wait_until_gone(20)  # a pod's processes end with it
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 2)]  # pod 1 is lost
    result = pods.finish(pods.lead(*options, *steps), 60)
    begun = re.search(r"begins at step (\d+)", result.output)
    assert result.returncode == 0 and begun is not None and 0 < int(begun[1]) < 80, result.output
    assert "has done 80 steps as rank 1 of 2" in result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [0, 0]
