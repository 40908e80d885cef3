"""A rank runs one program after another, and comes to the second one before others do."""

import sys

import pytest
from launch import PROGRAMS, Launcher
from load import within
from other_launchers import ROOT, command_of

ELASTIC = ("--min-np", "2", "--max-np", "2")


def _in_a_row(late: int) -> list[str]:
    program = f"{sys.executable} {PROGRAMS / 'one_of_two.py'}"
    return ["sh", "-c", f"{program} first {late} && {program} second -1"]


def _check(output: str) -> None:
    for name, value in (("first", 11), ("second", 13)):
        for rank in range(2):
            assert f"{name}: rank {rank} has {value}" in output, output


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("options", "transport"), [((), "auto"), ((), "tcp"), (ELASTIC, "auto")], ids=["shm", "tcp", "elastic"]
)
def test_of_horovodrun(job: Launcher, options: tuple[str, ...], transport: str, late: int) -> None:
    status, stdout, stderr = job.run("-np", "2", *options, *_in_a_row(late), HOROVOD_TRANSPORT=transport)
    assert status == 0, stderr.decode()
    _check(stdout.decode())


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("launcher", ["torchrun", "Open MPI"])
def test_of_other_launchers(job: Launcher, launcher: str, late: int) -> None:
    command = command_of(launcher, 2)
    command = [*command, "--no-python"] if launcher == "torchrun" else command[:-1]
    process = job.popen([*command, *_in_a_row(late)], env={**job.environment, **ROOT, "OMP_NUM_THREADS": "1"})
    result = job.finish(process, 60)
    assert result.returncode == 0, result.output
    _check(result.output)


def test_one_that_rank_0_never_comes_to_is_an_error_in_time(job: Launcher) -> None:
    """It goes on with something else, while its last program's store answers no more."""
    first, second = (
        f"{sys.executable} {PROGRAMS / 'one_of_two.py'} {name} -1" for name in ("first", "second")
    )
    script = f"{first} && if test $RANK$OMPI_COMM_WORLD_RANK = 0; then exec sleep 60; else {second}; fi"
    command = [*command_of("Open MPI", 2)[:-1], "sh", "-c", script]
    environment = {**job.environment, **ROOT, "HOROVOD_START_TIMEOUT": str(within(3))}
    result = job.finish(job.popen(command, env=environment), 30)
    assert result.returncode == 1
    assert "rank 1 on" in result.output and "Look whether rank 0 runs and calls hvd.init()" in result.output
