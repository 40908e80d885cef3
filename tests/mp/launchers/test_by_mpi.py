"""Tensors that travel by MPI, of each MPI that is here."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from launch import PROGRAMS, Launcher
from load import within
from other_launchers import mpich_for_mpi4py, run

from horovod.bootstrap import libraries

pytestmark = pytest.mark.slow  # how jobs of other launchers start is tried by test_launchers.py

BY_MPI = {libraries.VARIABLE: "MPI", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
BUILT = " ".join(library.path for library in libraries.installed("mpi"))
MPIS = [
    pytest.param(
        launcher,
        marks=pytest.mark.skipif(
            module not in BUILT, reason=f"horovod was built without it: make test-deps installs {package}"
        ),
    )
    for launcher, module, package in (
        ("Open MPI", "_mpi_openmpi", "libopenmpi-dev"),
        ("MPICH's mpirun", "_mpi_mpich", "libmpich-dev"),
    )
]


@pytest.mark.parametrize(
    "ranks", [pytest.param(2, marks=pytest.mark.full), 3, pytest.param(4, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("launcher", MPIS)
def test_every_collective_is_right(launcher: str, ranks: int) -> None:
    status, output = run(launcher, str(PROGRAMS / "by_library.py"), "hvd-mpi", ranks=ranks, **BY_MPI)
    assert status == 0, output
    assert len(re.findall(r"rank \d is done", output)) == ranks, output


@pytest.mark.parametrize("launcher", MPIS)
def test_sets_that_share_ranks_make_their_communicators_at_once(launcher: str) -> None:
    status, output = run(launcher, str(PROGRAMS / "makes_communicators.py"), ranks=10, **BY_MPI)
    assert status == 0 and "is done" in output, output


@pytest.mark.parametrize("launcher", MPIS)
def test_mpi_can_be_called_from_one_thread_only(launcher: str) -> None:
    program = (
        "import plain_horovod as hvd\n"
        "hvd.init(process_sets=[pair := hvd.ProcessSet([0, 1])])\n"
        "assert hvd.mpi_enabled() and not hvd.mpi_threads_supported()\n"
        "for step in range(20):\n"
        "    ones = bytearray([1] * 9)\n"
        "    own = pair.included() and hvd.allreduce_async_(ones, op=hvd.Sum, process_set=pair)\n"
        "    assert hvd.allreduce_(bytearray([1] * 9), op=hvd.Sum)[0] == 3\n"
        "    assert own is False or hvd.synchronize(own)[0] == 2\n"
        f"sys.path.append({str(PROGRAMS.parents[1] / 'ranks')!r})\n"
        "import threads\n"
        "assert threads.names()['hvd-mpi'] == 1, threads.names()\n"
        "hvd.shutdown()\n"
    )
    given = {**BY_MPI, "HOROVOD_MPI_THREADS_DISABLE": "1"}
    status, output = run(launcher, "-c", f"import sys\n{program}", ranks=3, **given)
    assert status == 0, output


@pytest.mark.parametrize("launcher", MPIS)
def test_mpi_carries_address_and_secret(launcher: str) -> None:
    program = (
        "import plain_horovod as hvd\n"
        "for start in range(3):\n"
        "    hvd.init()\n"
        "    assert hvd.mpi_enabled() and hvd.allreduce_(bytearray([1] * 9), op=hvd.Sum)[0] == 2\n"
        "    hvd.shutdown()\n"
    )
    given = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_LOG_LEVEL": "info"}
    status, output = run(launcher, "-c", program, ranks=2, **given)
    assert status == 0 and "MPI says where, and the secret is there, too" in output, output


def test_mpi_as_the_controller_of_ranks_that_it_did_not_start_is_refused() -> None:
    program = "import horovod.common.basics as hvd; hvd.init()"
    how = "horovodrun --mpi" if libraries.built("mpi") else "HOROVOD_WITH_MPI=1"
    for value, fails, reason in (("mpi", True, how), ("ibm", False, "expected gloo or mpi; it is ignored")):
        command = ("-np", "2", sys.executable, "-c", program)
        status, stdout, stderr = Launcher().run(*command, HOROVOD_CONTROLLER=value)
        assert (status != 0) == fails and reason in (stdout + stderr).decode()


@pytest.mark.parametrize("launcher", MPIS)
def test_a_killed_rank_ends_the_job(launcher: str) -> None:
    program = (
        "import os, signal, plain_horovod as hvd\n"
        "hvd.init()\n"
        "assert hvd.mpi_enabled() and hvd.mpi_threads_supported() and not hvd.gloo_enabled()\n"
        "for step in range(10**6):\n"
        "    if step == 20 and hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    hvd.allreduce_(bytearray(400_000), name='x')\n"
    )
    status, output = run(launcher, "-c", program, ranks=3, **BY_MPI)
    assert status != 0, output


@pytest.mark.parametrize("launcher", MPIS)
def test_a_rank_that_never_comes_ends_the_job(launcher: str) -> None:
    program = (
        "import time, plain_horovod as hvd\n"
        "from horovod.common.exceptions import HorovodInternalError\n"
        "hvd.init()\n"
        "hvd.allreduce_(bytearray(9), name='x')\n"
        "time.sleep(600 * (hvd.rank() == 1))\n"
        "try: hvd.allreduce_(bytearray(9), name='y')\n"
        "except HorovodInternalError as error: print('told:', error, flush=True)\n"
    )
    given = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    status, output = run(launcher, "-c", program, ranks=3, **BY_MPI, **given)
    assert status != 0 and re.search(r"told: .*\n.*not by rank 1", output), output


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed here")
@pytest.mark.parametrize("launcher", MPIS)
def test_communicators_are_jobs_and_process_sets(launcher: str, tmp_path: Path) -> None:
    given = {libraries.VARIABLE: "host"}
    if "MPICH" in launcher:
        given = {libraries.VARIABLE: "MPI", **mpich_for_mpi4py(tmp_path)}
    status, output = run(launcher, str(PROGRAMS / "by_communicator.py"), ranks=3, **given)
    assert status == 0, output
    assert len(re.findall(r"rank \d is done", output)) == 3, output


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed here")
@pytest.mark.parametrize("launcher", MPIS)
def test_lists_that_differ_are_an_error_on_all(launcher: str, tmp_path: Path) -> None:
    program = (
        "import os, time\n"
        "from mpi4py import MPI\n"
        "import horovod.common.basics as hvd\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "try:\n"
        "    rank == 3 or hvd.init(comm=[0, 2, 1] if rank == 1 else [0, 1, 2])\n"
        "except Exception as error:\n"
        "    print(f'rank {rank}: {error}', flush=True)\n"
        # So that the first that ends without MPI_Finalize does not end the others.
        f"time.sleep({within(3)})\n"
        "os._exit(0)\n"
    )
    given = mpich_for_mpi4py(tmp_path) if "MPICH" in launcher else {}
    _, output = run(launcher, "-c", program, ranks=4, HOROVOD_START_TIMEOUT=f"{within(10)}", **given)
    assert "rank 0: hvd.init(comm=[0, 1, 2]) on rank 0 of MPI_COMM_WORLD: [1] gave another list" in output


def test_a_list_of_ranks_without_mpi_says_what_it_takes() -> None:
    program = "import horovod.common.basics as hvd; hvd.init(comm=[0, 2])"
    status, stdout, stderr = Launcher().run("-np", "2", sys.executable, "-c", program)
    assert status != 0 and "MPI_COMM_WORLD (size 2)" in (stdout + stderr).decode()


@pytest.mark.parametrize("launcher", MPIS)
def test_a_forked_child_leaves_mpi_alone_at_its_end(launcher: str) -> None:
    program = (
        "import os, sys, plain_horovod as hvd\n"
        "hvd.init()\n"
        "hvd.allreduce_(bytearray(9))\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert hvd.allreduce_(bytearray([1] * 9), op=hvd.Sum)[0] == 2\n"
    )
    status, output = run(launcher, "-c", program, ranks=2, **BY_MPI)
    assert status == 0, output


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            "os.environ['HOROVOD_CPU_OPERATIONS'] = 'host'",
            r"rank 1 .* by horovod itself, and rank 0 .* by (Open MPI|MPICH) \d",
        ),
        ("is_waited_for()", "rank 1 never arrived"),
    ],
    ids=["by another library", "never"],
)
@pytest.mark.parametrize("launcher", MPIS)
def test_a_rank_that_does_not_start_mpi_holds_up_no_other(
    launcher: str, other: str, reason: str, tmp_path: Path
) -> None:
    patience = within(3)
    given_up = str(tmp_path / "given up")
    program = (
        "import os, sys, time, horovod.common.basics as hvd\n"
        "def is_waited_for():\n"
        f"    while not os.path.exists({given_up!r}): time.sleep(0.05)\n"
        "    sys.exit()\n"
        "if '1' in (os.environ.get('PMI_RANK'), os.environ.get('OMPI_COMM_WORLD_RANK')):\n"
        f"    {other}\n"
        "try: hvd.init()\n"
        f"finally: open({given_up!r}, 'w').close()\n"
    )
    status, output = run(launcher, "-c", program, ranks=3, **BY_MPI, HOROVOD_START_TIMEOUT=f"{patience}")
    assert status != 0 and re.search(reason, output), output
