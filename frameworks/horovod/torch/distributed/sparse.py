"""The allreduce of sparse tensors: by gathering the entries of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.common.reduce_ops import Average, Sum
from horovod.torch.distributed import buffers
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.reduce_ops import Reduction
from horovod.torch.placements import adopt


def allreduce(
    communicator: Communicator, tensors: Sequence[torch.Tensor], reduction: Reduction, options: Any
) -> Any:
    """The sum or the mean of one sparse COO tensor of each rank, which replaces it.

    Raises:
        ValueError: another layout or reduction, or several tensors.
    """
    tensor = tensors[0]
    if len(tensors) != 1 or tensor.layout is not torch.sparse_coo or reduction.op not in (Sum, Average):
        raise ValueError(
            "An allreduce of sparse tensors takes one of layout torch.sparse_coo, and SUM, AVG or PREMUL_SUM."
        )
    own = tensor.detach().coalesce()
    indices = own.indices().t().contiguous().cpu()
    values = own.values()
    plain = torch.view_as_real(values) if values.is_complex() else values
    plain = plain.contiguous().cpu()
    factor = reduction.prescale / (communicator.size if reduction.op == Average else 1)
    result: list[torch.Tensor] = []

    def finish(outputs: list[_core.Output] | None) -> None:
        rows, all_values = (indices, plain) if outputs is None else (adopt(outputs[0]), adopt(outputs[1]))
        if values.is_complex():
            all_values = torch.view_as_complex(all_values)
        total = torch.sparse_coo_tensor(
            rows.t(), all_values, tensor.shape, device=tensor.device, check_invariants=False
        ).coalesce()
        if factor != 1.0:
            total = (total * factor).to(tensor.dtype)
        with torch.no_grad():
            tensor.copy_(total)
        result.append(tensor)

    specs = [buffers.spec(part, None, part.shape) for part in (indices, plain)]
    if communicator.size == 1:
        specs = []
    return communicator.start(_core.ALLGATHER, specs, options, (indices, plain), finish, result)
