"""Communicators for process groups: the seam to how the core makes process sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod import _core
from horovod.torch.distributed import world
from horovod.torch.distributed.communicator import Communicator, LoneCommunicator


def open_communicator(
    rank: int, size: int, ranks: Sequence[int], store: Any, name: str, timeout: float
) -> Communicator:
    """A communicator for the ranks of one process group, which all of them call.

    Args:
        rank: of this process in the group.
        size: of the group.
        ranks: its members among those of the default group; empty: all.
        store: of the group.
        name: of the group.
        timeout: seconds that an operation may take.

    Raises:
        ValueError: this process is another rank of a job that runs already.
        RuntimeError: the ranks do not come together.
        NotImplementedError: the group is a part of the job.
    """
    if size == 1:
        return LoneCommunicator(name, timeout)
    members = list(ranks) or list(range(size))
    starts = not world.members()
    if starts:
        world.enter(rank, size, members, store)
    positions = [world.members().index(member) for member in members if member in world.members()]
    if positions != list(range(len(world.members()))):
        raise NotImplementedError(
            f"The backend hvd has groups of all ranks of its job, {world.members()}, and of one; not of "
            f"{members}."
        )
    number = _core.add_process_set(positions)
    return Communicator(number, rank, positions, name, timeout, world.leave if starts else lambda: None)


def open_part(rank: int, ranks: Sequence[int], name: str, timeout: float) -> Communicator | None:
    """A communicator for some ranks of the default group, all of whose ranks call this.

    Args:
        rank: of this process in the default group.
        ranks: the members.
        name: of the group.
        timeout: seconds that an operation may take.

    Returns:
        None on a rank that is no member.

    Raises:
        NotImplementedError: the members alone call, or they are not in ascending order.
    """
    if len(ranks) == 1:
        return LoneCommunicator(name, timeout) if rank in ranks else None
    everybody = len(ranks) == len(world.members())
    if not everybody and not name.isdecimal():  # as torch names groups that nobody but their members knows
        raise NotImplementedError(
            "The backend hvd has no new_group(use_local_synchronization=True) for a part of the ranks: leave "
            "it out, and let all ranks call new_group."
        )
    if list(ranks) != sorted(ranks):
        raise NotImplementedError(f"The ranks of a group of hvd must ascend, and {list(ranks)} do not.")
    positions = [world.members().index(member) for member in ranks]
    number = _core.add_process_set(positions)
    if rank not in ranks:
        return None
    return Communicator(number, list(ranks).index(rank), positions, name, timeout, lambda: None)
