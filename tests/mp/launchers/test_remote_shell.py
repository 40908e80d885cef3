"""Jobs on hosts without sshd, which a command of the user's leads to: namespaces that stand for pods."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networks
import psutil
import pytest
from launch import MODULE, Launcher
from load import within

REASON = networks.why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")

PROGRAM = """
import os, sys, time
from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects
hvd.init()
assert objects.allgather_object(hvd.rank()) == list(range(hvd.size()))
print(hvd.rank(), hvd.local_size(), hvd.cross_size(), os.environ.get("MASTER_ADDR"), flush=True)
"""
MISBEHAVES = PROGRAM + "sys.exit(7) if hvd.rank() == 2 else objects.allgather_object(0)\n"
JOB = ("-np", "4", "-H", "pod-0:2,pod-1:2")
STAYS = PROGRAM + "time.sleep(60)\n"


class Pods(Launcher):
    """Starts jobs on them by ``exec.sh POD COMMAND...``, as kubectl does."""

    def __init__(self, hosts: networks.Hosts, folder: Path) -> None:
        super().__init__()
        self.hosts = hosts
        cases = "".join(
            f'pod-{number}) exec {shlex.join(node.command())} "$@" ;;\n'
            for number, node in enumerate(hosts.nodes)
        )
        self.shell = folder / "exec.sh"
        self.shell.write_text(f'#!/bin/sh\npod=$1\nshift\ncase "$pod" in\n{cases}esac\necho no $pod >&2\n')
        self.shell.chmod(0o755)

    def start(self, *arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        command = [*MODULE, "--remote-shell", f"{self.shell} {{host}}", *arguments]
        return self.popen(self.hosts.switch.command(*command), env={**self.environment, **changes})


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with networks.hosts(2) as hosts:
        hosts.join("br0", "eth0", ["10.77.0.1/24", "10.77.0.2/24"], own="10.77.0.254/24")
        job = Pods(hosts, tmp_path)
        yield job
        job.wait_until_gone(4.0)


def test_ranks_run_in_pods_and_beside_the_launcher(pods: Pods) -> None:
    status, stdout, stderr = pods.run(
        "-np", "5", "-H", "pod-0:2,pod-1:2,localhost:1", sys.executable, "-c", PROGRAM
    )
    assert status == 0, stderr.decode()
    lines = [line.partition(">:")[2] for line in stdout.decode().splitlines()]
    assert sorted(lines) == [
        "0 2 3 10.77.0.1",
        "1 2 2 10.77.0.1",
        "2 2 3 10.77.0.1",
        "3 2 2 10.77.0.1",
        "4 1 3 10.77.0.1",
    ]


@pytest.mark.parametrize("policy", [[], ["--min-np=4", "--reset-limit=0"]], ids=["static", "elastic"])
def test_who_has_failed_is_named(pods: Pods, policy: list[str]) -> None:
    status, _, stderr = pods.run(*JOB, *policy, sys.executable, "-c", MISBEHAVES)
    assert status == 7 and "rank 2 (pod-1" in stderr.decode(), stderr.decode()


def test_the_loss_of_a_way_is_the_loss_of_its_host(pods: Pods) -> None:
    job = pods.start(*JOB, sys.executable, "-u", "-c", STAYS)
    _wait_for_lines(job, 4)
    _agent(pods, pods.hosts.nodes[1]).kill()
    result = pods.finish(job, 20)
    assert result.returncode == 1
    assert re.search(r"pod-1.*\(--remote-shell\)", result.stderr.decode()), result.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_launcher(pods: Pods, number: signal.Signals) -> None:
    job = pods.start(*JOB, sys.executable, "-u", "-c", STAYS)
    _wait_for_lines(job, 4)
    job.send_signal(number)
    assert pods.finish(job, 20).returncode == (-number if number == signal.SIGKILL else 128 + number)


def test_a_pod_that_is_not_there_is_named(pods: Pods) -> None:
    status, _, stderr = pods.run("-np", "4", "-H", "pod-0:2,pod-9:2", sys.executable, "-c", PROGRAM)
    assert status == 1 and "pod-9: " in stderr.decode() and "(no pod-9)" in stderr.decode()


def _agent(pods: Pods, node: networks.Namespace) -> psutil.Process:
    """The agent in a pod: the first of the job's processes in its network."""
    network = os.stat(f"/proc/{node.holder.pid}/ns/net").st_ino
    there = pods.those(lambda process: os.stat(f"/proc/{process.pid}/ns/net").st_ino == network)
    return min(there, key=psutil.Process.create_time)


def _wait_for_lines(job: "subprocess.Popen[bytes]", count: int) -> None:
    assert job.stdout is not None
    for _ in range(count):
        assert job.stdout.readline()


@pytest.mark.parametrize("policy", [[], ["--min-np=1"]], ids=["static", "elastic"])
def test_the_variable_says_how_long_hosts_have(policy: list[str]) -> None:
    words = [
        *MODULE,
        "--remote-shell",
        "sh -c 'exec sleep 60' {host}",
        "-np",
        "1",
        "-H",
        "far:1",
        *policy,
        "true",
    ]
    environment = {**os.environ, "HOROVOD_START_TIMEOUT": "1"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=within(20))
    assert result.returncode == 1 and "no agent came up within 1 s" in result.stderr
