"""Communicators for process groups: the seam to how the core makes process sets."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from horovod import _core
from horovod.torch.distributed import world
from horovod.torch.distributed.communicator import Communicator, LoneCommunicator
from horovod.torch.distributed.errors import job_has_ended


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
        ValueError: the ranks are not in one job, though some are in one that runs already.
        RuntimeError: the ranks do not come together.
    """
    if size == 1:
        return LoneCommunicator(name, timeout)
    members = list(ranks) or list(range(size))
    world.enter(rank, size, members, store)
    try:
        return _communicator(rank, members, name, timeout, has_entered=True)
    except BaseException:
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
        RuntimeError: the ranks do not come together, or (DistBackendError) the job of the default group has
            ended.
    """
    if rank not in ranks:
        return None
    if len(ranks) == 1:
        return LoneCommunicator(name, timeout)
    return _communicator(list(ranks).index(rank), ranks, name, timeout, has_entered=False)


def _communicator(
    rank: int, members: Sequence[int], name: str, timeout: float, has_entered: bool
) -> Communicator:
    known = world.members()
    if not known:
        raise job_has_ended(name)
    positions = [known.index(member) for member in members]
    number = _core.add_own_process_set(positions, timeout)
    leave = functools.partial(_leave, number, world.start(), has_entered)
    return Communicator(number, rank, positions, name, timeout, leave)


def _leave(number: int, start: int, has_entered: bool) -> None:
    """Of a group that ends: lets go of its process set, if the job that has it runs, and of the job."""
    try:
        if start == world.start():
            with contextlib.suppress(ValueError):  # the job has ended before
                _core.leave_process_set(number)
    finally:
        if has_entered:
            world.leave()
