"""The reductions of torch.distributed in terms of the core's, and those that it does not have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from horovod.common.reduce_ops import Average, Max, Min, Product, Sum

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


_HERE: dict[int, Combine] = {
    Sum: torch.add,
    Average: torch.add,
    Product: torch.mul,
    Min: torch.minimum,
    Max: torch.maximum,
}


class Reduction(NamedTuple):
    """How tensors of all ranks become one.

    ``op`` and ``prescale`` are for the core. Where ``combine`` is set the core only moves the tensors, and
    each rank combines them, two at a time and in rank order.
    """

    op: int = Sum
    prescale: float = 1.0
    combine: Combine | None = None

    def over(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks, combined on this rank."""
        total = functools.reduce(self.combine or _HERE[self.op], rows.unbind(0))
        if self.combine is not None:
            return total
        if self.prescale != 1.0:
            total = total * self.prescale
        if self.op == Average:
            exact = total.is_floating_point() or total.is_complex()
            total = torch.div(total, len(rows), rounding_mode=None if exact else "trunc")
        return total


def _number(op: Any) -> int:
    return int(op)


_CORE: dict[int, Reduction] = {
    _number(ReduceOp.SUM): Reduction(Sum),
    _number(ReduceOp.AVG): Reduction(Average),
    _number(ReduceOp.PRODUCT): Reduction(Product),
    _number(ReduceOp.MIN): Reduction(Min),
    _number(ReduceOp.MAX): Reduction(Max),
    _number(ReduceOp.BAND): Reduction(combine=torch.bitwise_and),
    _number(ReduceOp.BOR): Reduction(combine=torch.bitwise_or),
    _number(ReduceOp.BXOR): Reduction(combine=torch.bitwise_xor),
}
_PREMUL_SUM = _number(ReduceOp.PREMUL_SUM)
_SUM_OR_MEAN = (Sum, Average)
_COMPLEX_PRODUCT = Reduction(combine=torch.mul)


def reduction_of(op: Any) -> Reduction:
    """The reduction for a ``ReduceOp``."""
    number = _number(op.op)
    return _CORE[number] if number != _PREMUL_SUM else Reduction(prescale=float(op.factor))


def described(op: Any) -> str:
    """A ``ReduceOp`` in words, for the comparison between ranks."""
    name = str(op.op.name)
    return f"{name} with the factor {op.factor}" if _number(op.op) == _PREMUL_SUM else name


def for_tensor(reduction: Reduction, tensor: torch.Tensor) -> Reduction:
    """``reduction`` as it applies to the elements of ``tensor``.

    Raises:
        ValueError: these elements have no such reduction.
    """
    if tensor.is_complex() and reduction.op not in _SUM_OR_MEAN:
        if reduction.op == Product:
            return _COMPLEX_PRODUCT
        raise ValueError("Complex numbers have no minimum and no maximum.")
    if reduction.combine is not None and (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"Tensors of {tensor.dtype} have no bitwise reductions; integers and bool have.")
    return reduction
