"""Collectives by a library, in real jobs."""

import re
import signal
import sys
import time

import pytest
from launch import MODULE, Launcher
from load import within
from trial import Trial

from horovod.bootstrap import libraries

pytestmark = pytest.mark.skipif(
    not libraries.installed("gloo"),
    reason="horovod was built without Gloo: make test-deps installs libgloo-dev, make build finds it",
)
GLOO = {libraries.VARIABLE: "GLOO", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def test_the_log_says_which_library() -> None:
    program = [sys.executable, "-c", "import horovod.common.basics as hvd; hvd.init(); hvd.shutdown()"]
    status, _, stderr = Launcher().run("-np", "2", *program, **GLOO, HOROVOD_LOG_LEVEL="info")
    assert status == 0, stderr
    assert b"collectives on the CPU by gloo " in stderr, stderr


@pytest.mark.parametrize("kind", ["allreduce", "broadcast", "alltoall"])
def test_survivors_of_a_killed_rank_name_it(kind: str) -> None:
    job = Trial(3, "endless:repeat", kind, env=GLOO)
    try:
        job.send(signal.SIGKILL, 1)
        job.must_end(128 + signal.SIGKILL, r"rank 1 .*killed by SIGKILL")
        job.must_be_clean()
        assert job.fault_at is not None
        failed = re.findall(r"rank (\d+) failed at ([\d.]+): .*rank 1\b", job.output)
        assert {int(rank) for rank, _ in failed} == {0, 2}, job.output
        assert max(float(when) for _, when in failed) - job.fault_at < within(1.0), job.output
    finally:
        job.close()


def test_a_rank_that_is_stopped_for_a_while_goes_on() -> None:
    job = Trial(2, "endless:train", 4, 7, "watch", 0, env=GLOO)
    try:
        job.send(signal.SIGSTOP, 1)
        time.sleep(1.5)
        job.send(signal.SIGCONT, 1)
        assert job.end() == 0, job.output
        job.must_be_clean()
    finally:
        job.close()


def test_ranks_that_differ_hear_it_from_the_start() -> None:
    program = (
        "import os; os.environ['HOROVOD_CPU_OPERATIONS'] = ['gloo', ''][int(os.environ['HOROVOD_RANK'])]\n"
        "import horovod.common.basics as hvd; hvd.init()"
    )
    launcher = Launcher()
    result = launcher.finish(launcher.popen([*MODULE, "-np", "2", sys.executable, "-c", program]), 30)
    assert result.returncode != 0
    assert re.search(r"rank 1 .*horovod itself, and rank 0 .*gloo \d", result.output), result.output
    assert "give all ranks the same HOROVOD_CPU_OPERATIONS" in result.output


@pytest.mark.parametrize("value", ["CCL", "DDL", "none"])
def test_a_library_that_nobody_has_is_ignored_with_a_line(value: str) -> None:
    program = [sys.executable, "-c", "import horovod.common.basics as hvd; hvd.init()"]
    status, stdout, stderr = Launcher().run("-np", "2", *program, HOROVOD_CPU_OPERATIONS=value)
    assert status == 0
    said = rf"HOROVOD_CPU_OPERATIONS={value}: expected host or gloo or mpi; it is ignored"
    assert len(re.findall(said, (stdout + stderr).decode())) == 1
