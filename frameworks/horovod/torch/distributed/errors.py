"""What goes wrong in an operation of a process group, beside the exceptions of
``horovod.common.exceptions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch.distributed as dist

from horovod.common.exceptions import TensorMismatchError

if TYPE_CHECKING:
    from horovod.torch.distributed.communicator import Communicator


class CollectiveTimeoutError(dist.DistBackendError, TimeoutError):
    """An operation was not complete within its timeout: that of the call, or that of the process group. The
    operation goes on, and its tensors stay in use.
    """


def wrong_call(communicator: Communicator, what: str, why: str) -> ValueError:
    """For a call that cannot be meant; nothing of it was sent.

    Args:
        communicator: of the group.
        what: the operation, and what is wrong in it.
        why: what is wrong, and what would be right.
    """
    return ValueError(f"{what}, {_place(communicator)}: {why}.")


def at_odds(
    communicator: Communicator, what: str, sender: int, came: int, expected: int, unit: str
) -> TensorMismatchError:
    """For an output whose size is not what a rank has sent.

    Args:
        communicator: of the group.
        what: the operation.
        sender: the rank of the group.
        came: how much it has sent to this rank.
        expected: for how much this rank's output for it has room.
        unit: of both.
    """
    return TensorMismatchError(
        f"{what}, {_place(communicator)}: rank {sender} has sent {came} {unit}, but the output here has "
        f"room for {expected}. Give all ranks tensors, splits and roots that go with each "
        "other."
    )


def differ(communicator: Communicator, what: str, by_rank: Sequence[str]) -> TensorMismatchError:
    """For tensors that should be alike, with one text on all ranks.

    Args:
        communicator: of the group.
        what: the operation.
        by_rank: what each rank of the group has.
    """
    having: dict[str, list[int]] = {}
    for rank, text in enumerate(by_rank):
        having.setdefault(text, []).append(rank)
    told = "; ".join(f"{_ranks(ranks)} {text}" for text, ranks in having.items())
    return TensorMismatchError(
        f"{what} in process group {communicator.name!r}: the ranks have different tensors: {told}. Give all "
        "ranks tensors that are alike."
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _place(communicator: Communicator) -> str:
    return f"rank {communicator.rank} of {communicator.size} of process group {communicator.name!r}"


def timed_out(communicator: Communicator, what: str, seconds: float) -> CollectiveTimeoutError:
    """For one whose counterparts have not come.

    Args:
        communicator: of the group.
        what: the operation.
        seconds: how long it has been waited for.
    """
    return CollectiveTimeoutError(
        f"{what} on {_place(communicator)} is not complete, and its timeout of {seconds:g} s is over. Has "
        "every rank of the group started it, and all in the same order?"
    )


def message_timed_out(
    communicator: Communicator, sends: bool, peer: int | None, tag: int, seconds: float
) -> CollectiveTimeoutError:
    """For one whose other rank has not come.

    Args:
        communicator: of the group.
        sends: else it receives.
        peer: the other rank of the group; None: any.
        tag: of the message.
        seconds: how long it has been waited for.
    """
    whom = "any rank" if peer is None else f"rank {peer}"
    what, other = ("send to", "a receive") if sends else ("receive from", "a send")
    return CollectiveTimeoutError(
        f"A {what} {whom} (tag {tag}) on {_place(communicator)} is not complete, "
        f"and its timeout of {seconds:g} s is over. Has {whom} started {other} with this tag?"
    )


def was_destroyed(group: str) -> ValueError:
    """For what is asked of a group after its end.

    Args:
        group: the process group's name.
    """
    return ValueError(
        f"Process group {group!r} was destroyed, by dist.destroy_process_group(). Make another one."
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
