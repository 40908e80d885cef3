"""Jobs that other launchers start, the real ones, with no change to the script."""

import subprocess
import sys
from pathlib import Path

import pytest
import slurm
from launch import Launcher
from other_launchers import PROGRAM, ROOT, command_of, run

RANKS = 3


@pytest.mark.parametrize("launcher", ["Open MPI", "MPICH's mpirun", "torchrun"])
def test_ranks_are_those_of_the_launcher(launcher: str) -> None:
    words = () if "MPICH" in launcher else ("torch",)  # which test_launchers_hosts.py gives that one
    status, output = run(launcher, PROGRAM, *words, ranks=RANKS, HOROVOD_LOG_LEVEL="info")
    assert status == 0, output
    total = [RANKS * i + sum(range(RANKS)) for i in range(4)]
    for rank in range(RANKS):
        assert f"places {[rank, RANKS, rank, RANKS, 0, 1]} total {total}" in output, output
    assert f"info: {launcher} started this job" in output
    assert f"{RANKS} ranks on 1 host" in output and "over shared memory" in output


@pytest.mark.parametrize("launcher", ["Open MPI", "MPICH's mpirun"])
def test_jobs_side_by_side_do_not_meet(launcher: str) -> None:
    own = Launcher()
    environment = {**own.environment, **ROOT, "OMP_NUM_THREADS": "1"}
    command = [*command_of(launcher, 2), PROGRAM]
    jobs = [own.popen(command, env=environment, stderr=subprocess.STDOUT) for _ in range(3)]
    for job in jobs:
        result = own.finish(job, 90)
        assert result.returncode == 0, result.output
        assert result.output.count("total [1, 3, 5, 7]") == 2, result.output


@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "it is here")
def test_ranks_of_a_slurm_step(tmp_path: Path) -> None:
    own = Launcher()
    with slurm.cluster(tmp_path) as variables:
        environment = {**own.environment, **variables, "OMP_NUM_THREADS": "1", "HOROVOD_LOG_LEVEL": "info"}
        srun = ["srun", "--ntasks", str(RANKS), "--overcommit", sys.executable, PROGRAM]
        result = own.finish(own.popen(srun, env=environment, stderr=subprocess.STDOUT), 90)
        # One task that starts torchrun: the ranks are torchrun's.
        within = ["srun", "--ntasks", "1", *command_of("torchrun", 2), PROGRAM]
        inner = own.finish(own.popen(within, env=environment, stderr=subprocess.STDOUT), 90)
        # A script in an allocation that srun has not started is a job of its own.
        alone = [sys.executable, "-c", "import plain_horovod as h; h.init(); print('size', h.size())"]
        batch = {**environment, "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
        assert b"size 1" in own.finish(own.popen(alone, env=batch), 60).stdout
    assert result.returncode == 0, result.output
    for rank in range(RANKS):
        assert f"places {[rank, RANKS, rank, RANKS, 0, 1]} total" in result.output, result.output
    assert "info: srun started this job" in result.output
    assert "info: torchrun started this job" in inner.output, inner.output
    assert inner.output.count("total [1, 3, 5, 7]") == 2, inner.output


def test_a_rank_that_never_comes_is_named() -> None:
    program = "import os, time, plain_horovod as h\nos.environ['RANK'] == '1' and os._exit(0)\nh.init()"
    status, output = run(
        "torchrun", "--no-python", sys.executable, "-c", program, HOROVOD_START_TIMEOUT="3", ranks=2
    )
    assert status != 0 and "rank 1 never arrived" in output, output
