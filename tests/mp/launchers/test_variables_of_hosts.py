"""Variables for the ranks of one host, ``-x HOST:NAME=VALUE``, by every way on which ranks are started."""

import sys
from pathlib import Path

import networks
import pods as dialling
import pytest
from launch import Launcher
from test_remote_shell import Pods, pods  # noqa: F401  # a fixture

REASON = networks.why_not()
PROGRAM = """
import os
import plain_horovod as hvd
hvd.init()
print(hvd.rank(), *(os.environ.get(name) for name in ("SEED", "NET")), flush=True)
"""
POLICIES = pytest.mark.parametrize("policy", [[], ["--min-np=3"]], ids=["static", "elastic"])


def said(output: bytes) -> list[str]:
    return sorted(line.partition(">:")[2] for line in output.decode().splitlines())


@pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")
@POLICIES
def test_here_and_by_a_command(pods: Pods, policy: list[str]) -> None:  # noqa: F811
    options = ["-x", "SEED=1", "-x", "pod-1:SEED=2", "-x", "LOCALHOST:NET=ib0", "-x", "NET=eth0"]
    status, stdout, stderr = pods.run(
        *("-np", "3", "-H", "pod-0:1,pod-1:1,localhost:1", *policy, *options, sys.executable, "-c", PROGRAM)
    )
    assert status == 0, stderr.decode()
    assert said(stdout) == ["0 1 eth0", "1 2 eth0", "2 1 ib0"]


@pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")
@POLICIES
def test_on_hosts_that_dial(tmp_path: Path, policy: list[str]) -> None:
    with dialling.running(tmp_path) as there:
        agents = [there.join(pod, "--slots", "1") for pod in range(3)]
        options = ["-np", "3", *policy, "-x", "pod-1:SEED=2"]
        result = there.finish(there.lead(*options, sys.executable, "-c", PROGRAM, hosts=3), 60)
        assert result.returncode == 0, result.output
        assert sorted(line.split()[1] for line in said(result.stdout)) == ["2", "None", "None"]
        assert [there.finish(agent, 10).returncode for agent in agents] == [0] * 3


def test_a_host_that_is_none_of_the_job_is_an_error() -> None:
    for policy in ([], ["--min-np=1"]):
        status, _, stderr = Launcher().run("-np", "2", *policy, "-x", "node9:SEED=1", "true")
        assert status == 2
        assert b"-x node9: no host of this job is called so; it has localhost" in stderr, stderr
