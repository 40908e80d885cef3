"""Jobs of communicators of mpi4py: parts of the ranks, all with the parts as process sets, lists of ranks."""

import re

import plain_horovod as hvd
import pytest
from mpi4py import MPI

world = MPI.COMM_WORLD
color = world.rank % 2
part = world.Split(color, -world.rank)  # the last rank is its first
members = [rank for rank in reversed(range(world.size)) if rank % 2 == color]
everybody = sum(range(world.size))


def total(**options: object) -> int:
    """The sum of their numbers in the world, over the ranks."""
    return hvd.allreduce_(bytearray([world.rank]), op=hvd.Sum, **options)[0]


def all_ranks_meet() -> None:
    """Whatever they did before."""
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (world.rank, world.size) and total() == everybody
    hvd.shutdown()


def parts_are_jobs() -> None:
    """Each of its own, one more often than the other."""
    for _ in range(1 + color):
        hvd.init(comm=part)
        assert (hvd.rank(), hvd.size()) == (part.rank, part.size) == (members.index(world.rank), len(members))
        assert hvd.local_rank() == part.rank and total() == sum(members)
        assert hvd.allgather_object(world.rank) == members
        hvd.shutdown()
    assert part.allreduce(world.rank) == sum(members)


def communicators_are_process_sets() -> None:
    """Of a job of a communicator, and of all ranks."""
    own = hvd.ProcessSet(part)
    for comm in (world, None):
        hvd.init(comm=comm, process_sets=[own])
        assert own.ranks == sorted(members) and own.size() == len(members)
        assert own.rank() == own.ranks.index(world.rank)
        assert total() == everybody and total(process_set=own) == sum(members)
        hvd.shutdown()


def lists_are_jobs() -> None:
    """The second time with the communicator of the first."""
    for _ in range(2):
        hvd.init(comm=members)
        assert (hvd.rank(), hvd.size()) == (part.rank, part.size) and total() == sum(members)
        hvd.shutdown()
    hvd.init(comm=list(range(world.size)))
    assert hvd.size() == world.size and total() == everybody
    hvd.shutdown()


def errors_are_the_same_everywhere() -> None:
    """Or concern one process."""
    with pytest.raises(ValueError, match="COMM_NULL"):
        hvd.init(comm=MPI.COMM_NULL)
    with pytest.raises(ValueError, match=re.escape(f"on rank {world.rank} of MPI_COMM_WORLD")):
        hvd.init(comm=[rank for rank in range(world.size) if rank != world.rank])
    with pytest.raises(ValueError, match="has a process that is not in the job"):
        hvd.init(comm=part, process_sets=[hvd.ProcessSet(world)])
    strange = [hvd.ProcessSet(part if world.rank == 0 else [0, 1])]
    with pytest.raises(ValueError, match="communicators and lists of ranks are not in the same places"):
        hvd.init(process_sets=strange)
    assert not hvd.is_initialized()


def one_rank_alone_waits_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others do not come."""
    lonely = world.Dup()
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "1")
    if world.rank == 0:
        with pytest.raises(TimeoutError, match=r"not all of its \d ranks have called hvd.init"):
            hvd.init(comm=lonely)
        with pytest.raises(ValueError, match=r"hvd.init\(comm=comm.Dup\(\)\)"):
            hvd.init(comm=lonely)
        with pytest.raises(TimeoutError, match=r"of the ranks of MPI_COMM_WORLD \[1\] did not"):
            hvd.init(comm=[0, 1])


def a_list_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its ranks has waited for the other one in vain."""
    world.barrier()
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "1")
    if world.rank == 1:
        with pytest.raises(TimeoutError, match=r"of the ranks of MPI_COMM_WORLD \[0\] did not"):
            hvd.init(comm=[0, 1])
    world.barrier()
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "30")
    if world.rank < 2:
        hvd.init(comm=[0, 1])
        assert total() == 1
        hvd.shutdown()


if __name__ == "__main__":
    all_ranks_meet()
    parts_are_jobs()
    all_ranks_meet()
    communicators_are_process_sets()
    lists_are_jobs()
    errors_are_the_same_everywhere()
    all_ranks_meet()
    assert world.allreduce(1) == world.size and not MPI.Is_finalized()
    with pytest.MonkeyPatch.context() as changes:
        one_rank_alone_waits_not_for_ever(changes)
        a_list_can_be_tried_again(changes)
    print(f"rank {world.rank} is done", flush=True)
