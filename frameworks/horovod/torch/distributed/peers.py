"""Messages between two ranks of a group. They have bytes, not types or shapes."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common.collective.tensor_glue import DTYPES, Spec
from horovod.torch.distributed import buffers
from horovod.torch.distributed.communicator import Communicator


def send(communicator: Communicator, tensor: torch.Tensor, destination: int, tag: int) -> Any:
    """Sends a tensor to a rank of the group.

    Args:
        communicator: of the group, which has two ranks.
        tensor: any but a sparse one.
        destination: the other rank.
        tag: what tells the message from others.

    Returns:
        A Work, which is complete when the message has been received.

    Raises:
        NotImplementedError: the group has more ranks.
    """
    source = buffers.flat_source(tensor)
    return communicator.message(communicator.rank, tag, _bytes(source), None, source, [tensor])


def recv(communicator: Communicator, tensor: torch.Tensor, source: int | None, tag: int) -> Any:
    """Receives a tensor from a rank of the group.

    Args:
        communicator: of the group, which has two ranks.
        tensor: is overwritten; as long as what is sent.
        source: the other rank; None means the same.
        tag: that of the message.

    Returns:
        A Work, whose ``source_rank()`` is the sender.

    Raises:
        NotImplementedError: the group has more ranks.
    """
    target = buffers.target(tensor)
    arrived = None if target.is_direct else target.deliver
    sender = 1 - communicator.rank if source is None else source
    return communicator.message(sender, tag, _bytes(target.buffer), arrived, (target, tensor), [tensor])


def _bytes(tensor: torch.Tensor) -> Spec:
    address, size = tensor.data_ptr(), tensor.nbytes
    return (address, address, DTYPES["uint8"], (size,), size, size)
