"""Jobs that say nothing for a while, behind a network that forgets idle connections and tells nobody."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import networks
import pytest
from launch import PROGRAMS
from pods import Pods, running
from running_job import all_train, pid_of, wait_for

REASON = networks.why_not()
HAS_TAPS = os.access("/dev/net/tun", os.R_OK | os.W_OK)
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}"),
    pytest.mark.skipif(not HAS_TAPS, reason="no /dev/net/tun"),
]
FORGETS, RESTS = 20.0, 45.0  # seconds; links of ranks are probed after 15

RESTING = """
import sys, time
import plain_horovod as hvd
hvd.init()
hvd.allreduce_(bytearray(64), op=1, name="first")
time.sleep(float(sys.argv[1]))
hvd.allreduce_(bytearray(64), op=1, name="second")
print("rank", hvd.rank(), "has rested", flush=True)
if hvd.rank() == 1:
    sys.exit(3)
hvd.allreduce_(bytearray(64), op=1, name="last")
"""


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with running(tmp_path, idle=FORGETS) as made:
        yield made


def test_a_job_that_rests_goes_on_and_tells_who_fails(pods: Pods) -> None:
    agents = [pods.join(pod, "--slots", "1") for pod in (0, 1)]
    job = pods.lead("-np", "2", sys.executable, "-c", RESTING, str(RESTS))
    result = pods.finish(job, 2 * RESTS)
    assert result.returncode == 3, result.output
    assert all(f"[{rank}]<stdout>:rank {rank} has rested" in result.output for rank in (0, 1)), result.output
    assert re.search(r"rank 1 \(pod-1, .* failed first", result.output), result.output
    assert [pods.finish(agent, 10).returncode for agent in agents] == [3, 3]


def test_workers_of_an_elastic_job_hear_of_the_next_generation(pods: Pods, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    agents = [pods.join(pod, "--slots", "1") for pod in range(3)]
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "700", "never", "-1", "64", "0.1"]
    job = pods.lead("-np", "3", "--min-np", "2", "-x", f"HVD_TEST_LOG={log}", *steps, hosts=3)
    wait_for(all_train(3), log)
    time.sleep(RESTS)  # the ranks have nothing to say to the launcher
    known = log.read_text()
    os.kill(pid_of(pods, 1), signal.SIGKILL)
    wait_for(lambda text: all_train(3)(text.removeprefix(known)), log)
    result = pods.finish(job, 120)
    assert result.returncode == 0 and "is ended" not in result.output, result.output
    assert result.output.count("was killed by SIGKILL") == 1, result.output
    assert [pods.finish(agent, 10).returncode for agent in agents] == [0, 0, 0]
