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
