"""Complex tensors in the operations: they travel as the pairs of real numbers that they consist of."""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod.common.collective.tensor_glue import Output, Placement, Purpose, Result
from horovod.common.reduce_ops import OP_NAMES, Average, Sum

COMPLEX = (torch.complex64, torch.complex128)

Place = Callable[[torch.Tensor, Result, Purpose], Placement[torch.Tensor]]


def as_pairs(tensor: torch.Tensor, result: Result, purpose: Purpose, place: Place) -> Placement[torch.Tensor]:
    """The placement of a complex tensor; ``place`` makes that of a real one.

    Raises:
        ValueError: a reduction other than a sum or an average of them has no meaning, or is not that of the
            pairs.
    """
    if purpose.op not in (Average, Sum):
        raise ValueError(
            f"Complex numbers can be summed and averaged; {OP_NAMES[purpose.op]} is not supported."
        )
    data = tensor.detach()
    plain = data.resolve_conj().resolve_neg()
    has_rows = tensor.dim() > 0 or result is not Result.FROM_CORE  # else the core refuses it as a scalar
    placement = place(torch.view_as_real(plain) if has_rows else plain.real, result, purpose)

    def finish(output: Output | None) -> torch.Tensor:
        pairs = placement.finish(output)
        if result is not Result.IN_PLACE:
            return torch.view_as_complex(pairs.contiguous())
        if plain is not data:
            data.copy_(plain)
        return tensor

    return Placement(placement.spec, placement, finish, placement.ready, placement.location)
