"""The gradient of each operation, once for all adapters, in terms of the operations themselves.

``ops`` is the adapter's collection of operations. Where the forward operation had a name the backward one
derives its own from it, so that it too may run in any order; unnamed stays unnamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horovod.common.basics import rank
from horovod.common.placement import Tensor
from horovod.common.reduce_ops import Average

if TYPE_CHECKING:
    from horovod.common.collectives import Collectives


def _backward_name(name: str | None, part: str = "gradient") -> str | None:
    return None if name is None else name + "." + part


def allreduce_gradient(
    ops: Collectives[Tensor], gradient: Tensor, name: str | None, op: int, prescale: float, postscale: float
) -> Tensor:
    """Every rank's input reached every rank's output, so the gradients are reduced the way the inputs
    were.
    """
    return ops.allreduce(
        gradient, name=_backward_name(name), op=op, prescale_factor=prescale, postscale_factor=postscale
    )


def grouped_allreduce_gradient(
    ops: Collectives[Tensor],
    gradients: Sequence[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
) -> list[Tensor]:
    """As ``allreduce_gradient``, for a group and as a group."""
    return ops.grouped_allreduce(
        gradients, name=_backward_name(name), op=op, prescale_factor=prescale, postscale_factor=postscale
    )


def allgather_gradient(ops: Collectives[Tensor], gradient: Tensor, name: str | None, rows: int) -> Tensor:
    """The average of the ranks' gradients, of which this rank takes the ``rows`` that it contributed."""
    reduced = ops.allreduce(gradient, name=_backward_name(name), op=Average)
    counts = ops.allgather_numbers(rows, name=_backward_name(name, "rows"))
    me = rank()
    return ops.glue.rows(reduced, sum(counts[:me]), rows)


def broadcast_gradient(
    ops: Collectives[Tensor], gradient: Tensor, name: str | None, root_rank: int
) -> Tensor:
    """The average of the ranks' gradients on the root; zeros elsewhere, whose input had no influence."""
    reduced = ops.allreduce(gradient, name=_backward_name(name), op=Average)
    return reduced if rank() == root_rank else ops.glue.zeros_like(reduced)
