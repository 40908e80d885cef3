"""The allreduce of sparse tensors: by gathering the entries of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.common.reduce_ops import Average, Sum
from horovod.torch.distributed import buffers, checks
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.reduce_ops import Reduction, described
from horovod.torch.placements import adopt


def allreduce(
    communicator: Communicator, tensors: Sequence[torch.Tensor], reduction: Reduction, options: Any
) -> Any:
    """The sum or the mean of one sparse COO tensor of each rank, which replaces it.

    Raises:
        ValueError: another layout or reduction, or several tensors.
        TensorMismatchError: the ranks have tensors of different shapes, dimensions that are sparse, or types.
    """
    tensor = tensors[0]
    if len(tensors) != 1 or tensor.layout is not torch.sparse_coo or reduction.op not in (Sum, Average):
        raise ValueError(
            "An allreduce of sparse tensors takes one of layout torch.sparse_coo, and SUM, AVG or PREMUL_SUM."
        )
    own = tensor.detach().coalesce()
    indices = own.indices().t().contiguous().cpu().view(-1)
    values = own.values()
    plain = buffers.flat_source(values, moved=False)
    about = checks.as_bytes(f"{described(options.reduceOp)} of {_about(tensor)}")
    factor = reduction.prescale / (communicator.size if reduction.op == Average else 1)

    def finish(outputs: list[_core.Output] | None) -> None:
        places, entries, told = (indices, plain, about) if outputs is None else map(adopt, outputs)
        checks.check_alike(communicator, "all_reduce of sparse tensors", told)
        total = _assembled(places, entries, tensor, values).coalesce()
        if factor != 1.0:
            total = (total * factor).to(tensor.dtype)
        with torch.no_grad():
            tensor.copy_(total)

    # Flat, so that the ranks come to compare what is said of the tensors where they differ.
    specs = [buffers.spec(part, None, part.shape) for part in (indices, plain, about)]
    if communicator.size == 1:
        specs = []
    return communicator.start(_core.ALLGATHER, specs, options, (indices, plain, about), finish, [tensor])


def _assembled(
    places: torch.Tensor, entries: torch.Tensor, like: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """A tensor as ``like``, whose values are like ``values``, of flat indices and values of all ranks."""
    if values.is_complex():
        entries = torch.view_as_complex(entries.view(-1, 2))
    one = values.shape[1:]
    deep = like.sparse_dim()
    count = places.numel() // deep if deep else entries.numel() // max(1, one.numel())
    return torch.sparse_coo_tensor(
        places.view(count, deep).t(),
        entries.view(count, *one),
        like.shape,
        device=like.device,
        check_invariants=False,
    )


def _about(tensor: torch.Tensor) -> str:
    """What must be alike on all ranks."""
    name = str(tensor.dtype).removeprefix("torch.")
    return f"{list(tensor.shape)} of {name} with {tensor.sparse_dim()} sparse dimensions"
