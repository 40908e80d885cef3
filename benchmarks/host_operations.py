"""What hosts.py measures: each operation by ours and by gloo, its right result, and what a ring must send."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Values = Any  # a torch tensor


@dataclass(frozen=True)
class Operation:
    """``ours`` and ``gloo`` take their library and the whole tensor, and return what a rank has afterwards.

    ``expected`` is that, of a tensor in which element i is ``i % 1000 + rank`` before, given the position and
    number of ranks. ``share``: how much of the tensor each of p members of a ring sends to the next one.
    """

    ours: Callable[[Any, Values], Values]
    gloo: Callable[[Any, Values], Values] | None
    expected: Callable[[Values, int, int], Values]
    share: Callable[[int], float]


def part(tensor: Values, rank: int, size: int) -> Values:
    """A rank's equal part of the tensor."""
    length = tensor.numel() // size
    return tensor[rank * length : (rank + 1) * length]


def _gathered(dist: Any, tensor: Values) -> Values:
    import torch

    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty_like(part(tensor, rank, size)) for rank in range(size)]
    dist.all_gather(parts, part(tensor, rank, size).contiguous())
    return torch.cat(parts)


def _broadcast(dist: Any, tensor: Values) -> Values:
    dist.broadcast(tensor, 0)
    return tensor


def _reduced(dist: Any, tensor: Values) -> Values:
    dist.all_reduce(tensor)
    return tensor


def _joined(tensor: Values, size: int) -> Values:
    """Of each rank its own part."""
    import torch

    return torch.cat([part(tensor, rank, size) + rank for rank in range(size)])


def _total(tensor: Values, size: int) -> Values:
    return tensor * size + sum(range(size))


OPERATIONS = {
    "allreduce": Operation(
        lambda hvd, tensor: hvd.allreduce_(tensor, name=f"reduced.{tensor.numel()}", op=hvd.Sum),
        _reduced,
        lambda tensor, _rank, size: _total(tensor, size),
        lambda members: 2 * (members - 1) / members,
    ),
    "reducescatter": Operation(
        lambda hvd, tensor: hvd.reducescatter(tensor, name=f"scattered.{tensor.numel()}", op=hvd.Sum),
        None,
        lambda tensor, rank, size: part(_total(tensor, size), rank, size),
        lambda members: (members - 1) / members,
    ),
    "allgather": Operation(
        lambda hvd, tensor: hvd.allgather(
            part(tensor, hvd.rank(), hvd.size()).contiguous(), name=f"gathered.{tensor.numel()}"
        ),
        _gathered,
        lambda tensor, _rank, size: _joined(tensor, size),
        lambda members: (members - 1) / members,
    ),
    "broadcast": Operation(
        lambda hvd, tensor: hvd.broadcast_(tensor, 0, name=f"sent.{tensor.numel()}"),
        _broadcast,
        lambda tensor, _rank, _size: tensor,
        lambda members: 1.0,
    ),
}
