"""Communicators of mpi4py as process sets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from horovod import _core
from horovod.bootstrap import start
from horovod.bootstrap.communicator import is_communicator
from horovod.common.set_agreement import exchange


class RanksOrCommunicator(Protocol):
    """What is asked of a process set; see ``process_sets.ProcessSet``."""

    ranks: list[int] | None
    mpi_comm: Any


Set = TypeVar("Set", bound=RanksOrCommunicator)


def resolved(process_sets: Sequence[Set], make: Callable[[list[int]], Set]) -> tuple[list[Set], str | None]:
    """Process sets of ranks in place of those of communicators, equal on all ranks; and what is wrong with
    those of this rank. Where the ranks give several communicators, as after a split, each of these is a
    set; a rank's own object stands for its own. Collective over the job.
    """
    problem = None
    for process_set in process_sets:
        if process_set.mpi_comm is not None:
            try:
                process_set.ranks = _ranks_of(process_set.mpi_comm)
            except ValueError as error:
                process_set.ranks, problem = None, str(error)
    own_kinds = [process_set.mpi_comm is not None for process_set in process_sets]
    told = exchange([[known.ranks for known in process_sets], own_kinds], "hvd.init(process_sets=...)")
    if any(kinds != own_kinds for _, kinds in told.values()):
        return list(process_sets), problem or "communicators and lists of ranks are not in the same places"
    made = []
    for at, own in enumerate(process_sets):
        for ranks in _distinct(sets[at] for sets, _ in told.values()) if own_kinds[at] else [own.ranks]:
            made.append(own if ranks == own.ranks else make(ranks or []))
    return made, problem


def _distinct(lists: Iterable[list[int] | None]) -> list[list[int]]:
    found: list[list[int]] = []
    for ranks in lists:
        if ranks and ranks not in found:
            found.append(ranks)
    return found


def _ranks_of(comm: Any) -> list[int]:
    """The ranks of the job that are its members; of MPI.COMM_NULL, which others have, none. Asks nobody.

    Raises ValueError: it is none, or it has members outside of the job.
    """
    if not is_communicator(comm):
        raise ValueError(f"{comm!r:.100} is neither a list of ranks nor an intracommunicator of mpi4py")
    if not comm:
        return []
    mpi = importlib.import_module("mpi4py.MPI")
    told: Any = start.communicator()
    job = told if is_communicator(told) else mpi.COMM_WORLD
    if (job.Get_rank(), job.Get_size()) != _core.topology()[:2]:
        raise ValueError(
            "a process set of a communicator needs a job that mpirun or horovodrun --mpi has started, of the "
            "MPI that mpi4py uses"
        )
    members = list(range(comm.Get_size()))
    ranks = mpi.Group.Translate_ranks(comm.Get_group(), members, job.Get_group())
    if mpi.UNDEFINED in ranks:
        raise ValueError("a communicator of a process set has a process that is not in the job")
    return sorted(ranks)
