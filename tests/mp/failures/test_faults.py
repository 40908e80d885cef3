"""A rank stops in the middle of a 64 MiB allreduce, is killed or stays stopped: the others learn who."""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from launch import Job
from load import within

VICTIM = 1
POINT = re.compile(r"failpoint chunk@\d+ on rank 1: stop")


def start_with_failpoint(transport: str, chunk: int) -> Job:
    env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_FAILPOINT": f"chunk@{chunk}:rank{VICTIM}:stop"}
    return Job(3, "big_allreduce.py", env=env)


def stopped_rank(job: Job, timeout: float = 60) -> psutil.Process:
    """The victim, once it has stopped itself."""
    deadline = time.monotonic() + within(timeout)
    while time.monotonic() < deadline:
        if stopped := job.launcher.those(lambda process: process.status() == psutil.STATUS_STOPPED):
            return stopped[0]
        time.sleep(0.02)
    raise AssertionError("no rank reached the failpoint\n" + job.finish(0.1).output)


def assert_nothing_left(job: Job, family: list[psutil.Process]) -> None:
    """``family``: all processes of the job while it ran, its guard too. With them go their sockets,
    descriptors and mappings: none of these has a name in the file system.
    """
    _, alive = psutil.wait_procs(family, timeout=within(5))
    assert alive == []
    assert job.survivors() == []


def failures(output: str) -> dict[int, tuple[float, str]]:
    found = re.findall(r"rank (\d) failed at ([\d.]+): (.*)", output)
    return {int(rank): (float(when), text) for rank, when, text in found}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("chunk", [1, 97, 400])
def test_a_rank_killed_in_an_allreduce_is_named_within_a_second(transport: str, chunk: int) -> None:
    job = start_with_failpoint(transport, chunk)
    victim = stopped_rank(job)
    family = psutil.Process(job.process.pid).children(recursive=True)
    killed = time.time()
    victim.send_signal(signal.SIGKILL)
    result = job.finish(timeout=30)
    assert POINT.search(result.output), result.output
    assert result.returncode == 128 + signal.SIGKILL, result.output
    failed = failures(result.output)
    assert set(failed) == {0, 2}, result.output
    for when, text in failed.values():
        assert "rank 1" in text and "'big'" in text
        assert when - killed < within(1.0), result.output
    assert_nothing_left(job, family)


def stay_stopped(transport: str) -> None:
    job = start_with_failpoint(transport, 50)
    stopped_rank(job)
    family = psutil.Process(job.process.pid).children(recursive=True)
    stopped = time.time()
    result = job.finish(timeout=40)
    assert result.returncode != 0
    assert re.search(r"horovodrun: rank 1 \(.*\) stopped responding \(state T: stopped\)", result.output)
    failed = failures(result.output)
    assert set(failed) == {0, 2}, result.output
    for when, text in failed.values():
        assert "rank 1" in text and "stopped" in text
        assert when - stopped < within(10.0), result.output
    assert_nothing_left(job, family)


def test_a_rank_that_stays_stopped_is_named_within_ten_seconds() -> None:
    with ThreadPoolExecutor(2) as pool:  # both mostly wait
        assert list(pool.map(stay_stopped, ["shm", "tcp"])) == [None, None]
