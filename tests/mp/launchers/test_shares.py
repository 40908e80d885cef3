"""Where ranks run and what they get of their host, on this one and on others, in static and elastic jobs."""

import json
import os
import sys
from pathlib import Path

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
from horovod.common.collective.byte_objects import objects
hvd.init()
objects.allgather_object(hvd.rank())
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


@SSHD
@POLICIES
def test_ranks_start_in_the_folder_that_is_named(hosts: Hosts, tmp_path: Path, policy: list[str]) -> None:
    """The program is looked for there, too; relative paths of other options stay those of the caller."""
    folder = tmp_path / "of the ranks"
    folder.mkdir()
    (folder / "where.py").write_text(
        "import os\nfrom horovod.common import basics as hvd\n"
        "from horovod.common.collective.byte_objects import objects\n"
        "hvd.init()\nobjects.allgather_object(0)\nprint(os.getcwd(), flush=True)\n"
    )
    where = f"{sshd.HOSTS[0]}:1,{sshd.HOSTS[1]}:1"
    options = ["-np", "2", "-H", where, *policy, "--wdir", str(folder), "--output-filename", str(tmp_path)]
    status, stdout, stderr = hosts.run(*hosts.command(*options), "where.py")
    assert status == 0, stderr.decode()
    assert sorted(line[3:] for line in stdout.decode().splitlines()) == [f"<stdout>:{folder}"] * 2


@SSHD
@POLICIES
def test_a_host_without_the_folder_is_named(hosts: Hosts, tmp_path: Path, policy: list[str]) -> None:
    absent = f"--wdir {tmp_path}/absent: there is no such folder"
    far = f"{sshd.HOSTS[1]}:1,{sshd.HOSTS[2]}:1"
    options = ["-np", "2", *policy, "--wdir", str(tmp_path / "absent")]
    status, _, stderr = hosts.run(*hosts.command(*options, "-H", far), "where.py")
    # Both, if the other one answers within half a second.
    assert status == 1 and any(f"{host}: {absent}" in stderr.decode() for host in sshd.HOSTS[1:])
    status, _, stderr = hosts.run(*options, "where.py")
    assert (status, stderr.decode()) == (2, f"horovodrun: error: {absent} on this host\n")


@SSHD
def test_hosts_of_a_batch_system(hosts: Hosts) -> None:
    batch = {"SLURM_JOB_NODELIST": ",".join(sshd.HOSTS), "SLURM_TASKS_PER_NODE": "1(x2),2"}
    command = hosts.command("--exclude", sshd.HOSTS[1], "sh", "-c", "echo $HOROVOD_RANK on $HOROVOD_HOSTNAME")
    status, stdout, stderr = hosts.run(*command, **batch)
    assert status == 0, stderr.decode()
    lines = sorted(line.partition(">:")[2] for line in stdout.decode().splitlines())
    assert lines == [f"0 on {sshd.HOSTS[0]}", f"1 on {sshd.HOSTS[2]}", f"2 on {sshd.HOSTS[2]}"]
