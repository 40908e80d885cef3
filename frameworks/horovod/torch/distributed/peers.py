"""Messages between two ranks of a group. They have bytes, not types or shapes."""

from __future__ import annotations

from typing import Any

import torch

from horovod import _core
from horovod.common.collective.tensor_glue import DTYPES, Spec
from horovod.torch.distributed import buffers, checks
from horovod.torch.distributed.communicator import Communicator


def send(communicator: Communicator, tensor: torch.Tensor, destination: int, tag: int) -> Any:
    """Sends a tensor to a rank of the group.

    Args:
        communicator: of the group.
        tensor: any but a sparse one.
        destination: the other rank.
        tag: what tells the message from others.

    Returns:
        A Work, which is complete when the tensor may be changed again.

    Raises:
        ValueError: there is no such rank, or no such tag.
    """
    checks.check_rank(communicator, "send, its destination", destination)
    source = buffers.flat_source(tensor)
    return communicator.message(_core.SEND, destination, tag, _bytes(source), None, source, [tensor])


def recv(communicator: Communicator, tensor: torch.Tensor, source: int | None, tag: int) -> Any:
    """Receives a tensor from a rank of the group.

    Args:
        communicator: of the group.
        tensor: is overwritten; as long as what is sent.
        source: the other rank; None: any.
        tag: that of the message.

    Returns:
        A Work, whose ``source_rank()`` is the sender when it is complete. It fails with TensorMismatchError
        if the message has another size.

    Raises:
        ValueError: as for ``send``.
    """
    if source is not None:
        checks.check_rank(communicator, "recv, its source", source)
    target = buffers.target(tensor)
    arrived = None if target.is_direct else target.deliver
    kept = (target, tensor)
    return communicator.message(_core.RECV, source, tag, _bytes(target.buffer), arrived, kept, [tensor])


def _bytes(tensor: torch.Tensor) -> Spec:
    address, size = tensor.data_ptr(), tensor.nbytes
    return (address, address, DTYPES["uint8"], (size,), size, size)
