"""What goes wrong in an operation of a process group, beside the exceptions of
``horovod.common.exceptions``."""

from __future__ import annotations

import torch.distributed as dist


class CollectiveTimeoutError(dist.DistBackendError, TimeoutError):
    """An operation was not complete within its timeout: that of the call, or that of the process group. The
    operation goes on, and its tensors stay in use.
    """


def timed_out(what: str, group: str, rank: int, size: int, seconds: float) -> CollectiveTimeoutError:
    """For one whose counterparts have not come.

    Args:
        what: the operation.
        group: the process group's name.
        rank: of this process in the group.
        size: of the group.
        seconds: how long it has been waited for.
    """
    return CollectiveTimeoutError(
        f"{what} on rank {rank} of {size} of process group {group!r} is not complete, and its timeout of "
        f"{seconds:g} s is over. Has every rank of the group started it, and all in the same order?"
    )


def message_timed_out(
    sends: bool, peer: int | None, tag: int, group: str, rank: int, size: int, seconds: float
) -> CollectiveTimeoutError:
    """For one whose other rank has not come.

    Args:
        sends: else it receives.
        peer: the other rank of the group; None: any.
        tag: of the message.
        group, rank, size, seconds: as for ``timed_out``.
    """
    whom = "any rank" if peer is None else f"rank {peer}"
    what, other = ("send to", "a receive") if sends else ("receive from", "a send")
    return CollectiveTimeoutError(
        f"A {what} {whom} (tag {tag}) on rank {rank} of {size} of process group {group!r} is not complete, "
        f"and its timeout of {seconds:g} s is over. Has {whom} started {other} with this tag?"
    )


def job_has_ended(group: str) -> dist.DistBackendError:
    """For what is asked of a group that has outlived its job.

    Args:
        group: the process group's name.
    """
    return dist.DistBackendError(
        f"The job of process group {group!r} has ended, by hvd.shutdown() or with the default group. "
        "Call dist.destroy_process_group(), then dist.init_process_group() on all ranks."
    )
