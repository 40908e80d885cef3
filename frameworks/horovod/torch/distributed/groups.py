"""Communicators for process groups: the seam to how the core makes process sets."""

from __future__ import annotations

import contextlib
import functools
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
        NotImplementedError: some of the ranks are none of the job that runs already, or they are not in its
            order.
    """
    if size == 1:
        return LoneCommunicator(name, timeout)
    members = list(ranks) or list(range(size))
    starts = not world.members()
    if starts:
        world.enter(rank, size, members, store)
    strangers = [member for member in members if member not in world.members()]
    if strangers:
        raise NotImplementedError(
            f"The first group of the backend hvd has the ranks {list(world.members())}, which are its job; "
            f"{strangers} of {members} are not among them. Make a group of all ranks first."
        )
    try:
        return _communicator(rank, members, name, timeout, starts)
    except BaseException:
        if starts:
            world.leave()
        raise


def open_part(rank: int, ranks: Sequence[int], name: str, timeout: float) -> Communicator | None:
    """A communicator for some ranks of the default group, which alone need to call this.

    Args:
        rank: of this process in the default group.
        ranks: the members.
        name: of the group.
        timeout: seconds that an operation may take.

    Returns:
        None on a rank that is no member.

    Raises:
        RuntimeError: the ranks do not come together.
        NotImplementedError: they are not in ascending order.
    """
    if rank not in ranks:
        return None
    if len(ranks) == 1:
        return LoneCommunicator(name, timeout)
    return _communicator(list(ranks).index(rank), ranks, name, timeout, False)


def _communicator(rank: int, members: Sequence[int], name: str, timeout: float, starts: bool) -> Communicator:
    positions = [world.members().index(member) for member in members]
    if positions != sorted(positions):
        raise NotImplementedError(f"The ranks of a group of hvd must ascend, and {list(members)} do not.")
    number = _core.add_own_process_set(positions, timeout)
    leave = functools.partial(_leave, number, world.start(), starts)
    return Communicator(number, rank, positions, name, timeout, leave)


def _leave(number: int, start: int, ends_job: bool) -> None:
    """Of a group that ends: lets go of its process set, if the job that has it runs, and of the job."""
    if start == world.start():
        with contextlib.suppress(ValueError):  # the job has ended before
            _core.leave_process_set(number)
    if ends_job:
        world.leave()
