"""Elastic jobs on hosts that dial the launcher: they come, come back, and go."""

import re
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import networks
import pytest
from elastic_job import TRAINS
from launch import PROGRAMS
from pods import Pods, break_connection, keep_apart, running
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


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGPWR))
def test_a_pod_that_is_asked_to_end_hands_over_at_a_commit(
    pods: Pods, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    log.touch()
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 1)]
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "60", "never", "-1", "64", "0.05"]
    asks = [] if number == signal.SIGTERM else ["--preemption-signal", number.name]
    words = ["-np", "2", "--min-np", "1", "--grace", "20", *asks, "-x", f"HVD_TEST_LOG={log}", *steps]
    job = pods.lead(*words)
    wait_for(all_train(2), log)
    pods.signal(agents[1], number)
    assert pods.finish(agents[1], 20).returncode == 128 + number
    result = pods.finish(job, 60)
    assert result.returncode == 0 and "pod-1 is about to go: its workers leave" in result.output
    assert "killed" not in result.output and "error" not in log.read_text(), result.output + log.read_text()
    assert pods.finish(agents[0], 5).returncode == 0


HOLD_DOWN = 8.0
CUT_OFF = re.compile(r"\(pod-2\).* do not reach each other; no worker is started on that host for 8 s")


def begun_by_two(text: str) -> list[tuple[int, float]]:
    """The first step of each generation of two, and when it was made."""
    found = TRAINS.findall(text)
    return [(int(step), float(when)) for rank, of, step, _, when in found if (rank, of) == ("0", "2")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_host_behind_a_firewall_costs_a_generation_now_and_then(pods: Pods, tmp_path: Path) -> None:
    """The launcher reaches it, and the ranks of the others do not."""
    log, output = tmp_path / "log", tmp_path / "output"
    log.touch()
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 1)]
    options = ["--min-np", "1", "--blacklist-cooldown-range", "1", f"{HOLD_DOWN:g}", "--start-timeout", "8"]
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "100000", "never", "-1", "64", "0.02"]
    words = ["-np", "2", *options, "-x", f"HVD_TEST_LOG={log}", *steps]
    with output.open("wb") as file:
        job = pods.lead(*words, into=file)
    wait_for(all_train(2), log)
    open_up = keep_apart(pods.hosts.nodes[2], (0, 1))
    agents.append(pods.join(2, "--slots", "1"))
    wait_for(lambda text: len(CUT_OFF.findall(text)) == 3, output, 90)
    wait_for(lambda text: len(begun_by_two(text)) == 4, log)
    steps_made, moments = zip(*begun_by_two(log.read_text()), strict=True)
    assert steps_made[1] > steps_made[0]  # where the third host came, soon or late
    assert all(late > early + 20 for early, late in pairwise(steps_made[1:])), log.read_text()
    assert all(late > early + HOLD_DOWN - 1 for early, late in pairwise(moments[1:])), log.read_text()
    assert "has lost" not in log.read_text() and " of 3 " not in log.read_text(), log.read_text()
    open_up()
    wait_for(all_train(3), log, 60)
    job.send_signal(signal.SIGTERM)
    assert pods.finish(job, 20).returncode == 128 + signal.SIGTERM, output.read_text()
    assert [pods.finish(agent, 5).returncode for agent in agents] == [128 + signal.SIGTERM] * 3


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
