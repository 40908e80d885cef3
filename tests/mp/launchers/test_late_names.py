"""Names that lead nowhere until some seconds after a job has begun, as that of a pod in the pod itself."""

import sys
from pathlib import Path

import pytest
from launch import Launcher

from horovod.bootstrap.network.endpoints import free_port

NAME = "train-0.train"
# Who asks for the name learns it the third time, and every other time from then on, as of two servers of
# which one has not heard of it yet.
LATE = f"""
import socket, sys
known, asked = socket.getaddrinfo, []
def late(host, *arguments, **words):
    if host == {NAME!r}:
        asked.append(host)
        if len(asked) < 3 or len(asked) % 2 == 0:
            raise socket.gaierror(-2, "Name or service not known")
        host = "127.0.0.1"
    return known(host, *arguments, **words)
socket.getaddrinfo = late
"""
LAUNCHER = LATE + "from horovod.runner import launch\nlaunch.run_commandline()\n"
RANK = LATE + "from horovod.common import basics as hvd\nhvd.init()\nprint('rank', hvd.rank(), hvd.size())\n"


@pytest.fixture
def own(tmp_path: Path) -> Launcher:
    made = Launcher()
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("5" * 64)
    made.environment["HOROVOD_SECRET_FILE"] = str(secret)
    return made


@pytest.mark.parametrize("who", [["--node-rank", "0"], ["--node-rank", "auto"], []])
def test_the_host_that_leads_waits_for_its_own_name(own: Launcher, who: list[str]) -> None:
    options = ["--nnodes", "1", "--nproc-per-node", "2", "--rendezvous", f"{NAME}:{free_port()}", *who]
    job = own.popen([sys.executable, "-c", LAUNCHER, *options, "echo", "here"])
    result = own.finish(job, 30)
    assert result.returncode == 0 and result.stdout.count(b"here") == 2, result.output
    assert result.stderr.count(b"waits until train-0.train leads to an address") == 1, result.output
    own.wait_until_gone(5)


@pytest.mark.parametrize("who", [["--node-rank", "0", "--nnodes", "1"], ["--wait-for-hosts", "1"]])
def test_who_leads_without_a_name_waits_for_none(own: Launcher, who: list[str]) -> None:
    job = own.start("-np", "1", "--rendezvous", f":{free_port()}", *who, "--start-timeout", "1", "true")
    result = own.finish(job, 20)
    assert b"leads to" not in result.stderr, result.output
    assert result.returncode == 0 if "--nnodes" in who else b"did not dial" in result.stderr, result.output


@pytest.mark.parametrize("who", [["--node-rank", "0"], []])
def test_a_name_that_stays_unknown_is_an_error(own: Launcher, who: list[str]) -> None:
    where = ["--nnodes", "2", "-np", "2", "--rendezvous", "no.such.host.invalid:29500"]
    result = own.finish(own.start(*where, "--start-timeout", "1", *who, "true"), 20)
    assert result.returncode == 2, result.output
    assert b"error: --rendezvous no.such.host.invalid: this name leads to no address here" in result.stderr


def test_ranks_without_a_launcher_wait_for_the_name_of_rank_0(own: Launcher) -> None:
    ranks = []
    for index in range(2):
        told = {"JOB_COMPLETION_INDEX": str(index), "WORLD_SIZE": "2", "MASTER_ADDR": NAME}
        told["HOROVOD_HOSTNAME"] = f"train-{index}"
        ranks.append(own.popen([sys.executable, "-c", RANK], env={**own.environment, **told}))
    ends = [own.finish(rank, 40) for rank in ranks]
    assert [end.returncode for end in ends] == [0, 0], [end.output for end in ends]
    assert b"rank 1 2" in ends[1].stdout
    own.wait_until_gone(5)
