"""MPI that cannot go on: an error of it, calls left behind, ranks that are lost or do not come."""

import re
import time

import pytest
from launch import PROGRAMS
from load import within
from other_launchers import run
from test_by_mpi import BUILT, BY_MPI, MPIS

pytestmark = pytest.mark.slow  # how jobs of other launchers start is tried by test_launchers.py

PROGRAM = str(PROGRAMS / "gives_mpi_up.py")


@pytest.mark.skipif("_mpi_mpich" not in BUILT, reason="horovod was built without MPICH")
def test_an_error_of_mpi_while_a_communicator_is_made_is_an_error_of_ours() -> None:
    status, output = run("MPICH's mpirun", PROGRAM, "no_room", ranks=2, **BY_MPI)
    assert status != 0
    text = r"rank \d: 'x' was not completed: rank \d: MPI failed during setting up: MPI_Comm_create_group: "
    assert len(re.findall(text, output)) == 2, output


@pytest.mark.parametrize("launcher", MPIS)
def test_after_a_shutdown_amid_a_collective_the_next_start_says_so(launcher: str) -> None:
    status, output = run(launcher, PROGRAM, "starts_again", ranks=2, **BY_MPI)
    assert status != 0
    told = (
        r"rank \d: .*MPI was given up in this process.*start the job again. Or unset HOROVOD_CPU_OPERATIONS"
    )
    assert re.search(told, output), output


@pytest.mark.parametrize("launcher", MPIS)
def test_a_process_that_has_given_mpi_up_does_not_end_with_status_0(launcher: str) -> None:
    status, output = run(launcher, PROGRAM, "ends_well", ranks=2, **BY_MPI)
    assert status != 0 and "this process ends without MPI_Finalize, and with status 1" in output, output


@pytest.mark.parametrize("launcher", MPIS[:1])
def test_a_survivor_without_a_collective_does_not_finalize_mpi(launcher: str) -> None:
    survive = {"OMPI_MCA_orte_enable_recovery": "1"}
    _, output = run(launcher, PROGRAM, "loses_a_rank", ranks=3, **BY_MPI, **survive)
    assert len(re.findall("a rank is lost or stuck: this process ends without MPI_Finalize", output)) == 2, (
        output
    )


@pytest.mark.parametrize("launcher", MPIS)
def test_mpi_as_the_controller_waits_for_a_rank_no_longer_than_the_start_may_take(launcher: str) -> None:
    given = {**BY_MPI, "HOROVOD_CONTROLLER": "mpi", "HOROVOD_START_TIMEOUT": "3"}
    begin = time.monotonic()
    status, output = run(launcher, PROGRAM, "comes_late", ranks=3, **given)
    told = "HOROVOD_CONTROLLER=MPI: not all ranks have initialized MPI, as hvd.init() does, within 3 s"
    assert status != 0 and told in output, output
    assert time.monotonic() - begin < within(25.0)
