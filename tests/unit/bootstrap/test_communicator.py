"""What hvd.init(comm=...) takes, without MPI: with communicators that only look like mpi4py's."""

import sys
import types
from typing import Any

import pytest

from horovod.bootstrap import communicator
from horovod.bootstrap.communicator import CommunicatorCarrier, check, communicator_of, identity_of
from horovod.bootstrap.errors import StartTimeoutError
from horovod.bootstrap.network.interfaces import from_environment as network_of
from horovod.bootstrap.rendezvous import ways

OPEN_MPI = {
    f"OMPI_COMM_WORLD_{name}": value
    for name, value in (("RANK", "1"), ("SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_SIZE", "4"))
}


class Request:
    def __init__(self, tests: int) -> None:
        self.tests = tests

    def Test(self) -> bool:
        self.tests -= 1
        return self.tests < 0


class Comm:
    """Of one member that speaks for all."""

    def __init__(self, rank: int, size: int, *, tests: int = 2, is_inter: bool = False) -> None:
        self.rank, self.size, self.tests, self.is_inter = rank, size, tests, is_inter
        self.told = b""

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_group(self) -> None:
        """Not asked here."""

    def Is_inter(self) -> bool:
        return self.is_inter

    def Iallgather(self, own: bytearray, every: bytearray) -> Request:
        every[:] = bytes(own) * self.size
        return Request(self.tests)

    def Ibcast(self, line: bytearray, root: int) -> Request:
        if self.rank == root:
            self.told = bytes(line)
        line[:] = self.told or line
        return Request(self.tests)


class Null(Comm):
    def __bool__(self) -> bool:
        return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Comm:
    """MPI_COMM_WORLD, of four."""
    made = Comm(1, 4)
    mpi: Any = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD = made
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.parametrize(
    ("comm", "words"),
    [
        (object(), "intracommunicator of mpi4py"),
        (Comm(0, 2, is_inter=True), "intracommunicator of mpi4py"),
        (Null(0, 0), "COMM_NULL"),
        ([0, 2], r"rank 1 of MPI_COMM_WORLD \(size 4\)"),
        ([1, 1], "each once"),
        (range(1, 5), "size 4"),
    ],
)
def test_what_it_does_not_take(world: Comm, comm: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(comm)


def test_what_it_takes(world: Comm) -> None:
    for comm in (None, [], [1], (3, 1), range(4), world, Comm(0, 2)):
        check(comm)
    for comm in (None, [], [0, 1, 2, 3], range(4)):
        assert communicator_of(comm, 1.0) is None
    assert communicator_of(world, 1.0) is world


def test_a_member_has_the_rank_that_it_has_there(world: Comm) -> None:
    found = identity_of(Comm(0, 2), OPEN_MPI, 1.0)
    assert (found.rank, found.size, found.local_rank, found.local_size) == (0, 2, 0, 2)
    assert "Open MPI" in found.launcher


@pytest.mark.parametrize("environ", [{}, {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "8"}])
def test_processes_that_mpi_has_not_started(world: Comm, environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"MPI_COMM_WORLD has 4: start the job with mpirun"):
        identity_of(Comm(0, 2), environ, 1.0)


def test_a_member_that_does_not_come(world: Comm) -> None:
    comm = Comm(0, 2, tests=10**9)
    with pytest.raises(StartTimeoutError, match=r"not all of its 2 ranks have called hvd.init within 0.01 s"):
        identity_of(comm, OPEN_MPI, 0.01)
    assert communicator._abandoned
    comm.tests = 0  # MPI would take the call of the second try for that of the first
    with pytest.raises(ValueError, match=r"came when it was tried before.*comm.Dup\(\)"):
        identity_of(comm, OPEN_MPI, 0.01)
    assert identity_of(Comm(0, 2), OPEN_MPI, 1.0).rank == 0


def test_the_ranks_meet_by_it_although_on_one_host(world: Comm) -> None:
    comm = Comm(0, 2)
    identity = identity_of(comm, OPEN_MPI, 1.0)
    carrier = CommunicatorCarrier(comm, 1.0)
    first = ways.find_rendezvous(identity, OPEN_MPI, network_of(OPEN_MPI), None, 1.0, carrier)
    assert first.server is not None
    try:
        comm.rank = 1
        second = CommunicatorCarrier(comm, 1.0)
        assert second.hear(1.0) == second.hear(1.0) == f"{first.address};{first.root.hex()}"  # type: ignore[union-attr]
    finally:
        first.server.close()
