"""What ranks get of their host, on this one and on others, in static and elastic jobs."""

import json
import os
import sys

import pytest
import sshd
from launch import Launcher
from sshd import Hosts

from horovod.runner.nodes import binding

POLICIES = pytest.mark.parametrize("policy", [[], ["--min-np", "2"]], ids=["static", "elastic"])
SSHD = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())
VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
TELL = f"""
import json, os
from horovod.common import basics as hvd
hvd.init()
print(json.dumps([sorted(os.sched_getaffinity(0)), *map(os.environ.get, {VARIABLES})]), flush=True)
"""


def told(output: bytes) -> list[list[object]]:
    return sorted(json.loads(line.partition(b">:")[2]) for line in output.splitlines())


def bound(size: int) -> list[list[object]]:
    shares = [binding.share_of_rank("core", rank, size) for rank in range(size)]
    cores = [(sorted(share.cores), str(share.threads)) for share in shares if share is not None]
    return [[*share, gpus] for share, gpus in zip(cores, ("0,1", "2,3"), strict=False)]


@POLICIES
def test_ranks_have_cores_of_their_own(job: Launcher, policy: list[str]) -> None:
    for name in VARIABLES:
        job.environment.pop(name, None)
    program = [sys.executable, "-c", TELL]
    options = ["--bind-to", "core", "--gpus-per-rank", "2"]
    status, stdout, stderr = job.run("-np", "2", *policy, *options, *program)
    assert status == 0, stderr.decode()
    assert told(stdout) == sorted(bound(2))
    everything = sorted(os.sched_getaffinity(0))
    unbound = told(job.run("-np", "2", *policy, *program)[1])
    assert [(cores, gpus) for cores, _, gpus in unbound] == [(everything, None)] * 2


@SSHD
@POLICIES
def test_on_each_host(hosts: Hosts, policy: list[str]) -> None:
    for name in VARIABLES:
        hosts.environment.pop(name, None)
    where = f"{sshd.HOSTS[0]}:1,{sshd.HOSTS[1]}:2"
    options = ["-np", "3", "-H", where, *policy, "--bind-to", "core", "--gpus-per-rank", "2"]
    status, stdout, stderr = hosts.run(*hosts.command(*options), sys.executable, "-c", TELL)
    assert status == 0, stderr.decode()
    assert told(stdout) == sorted([*bound(1), *bound(2)])
