"""The gradient of each operation, once for all adapters, in terms of the operations themselves.

``ops`` is the adapter's collection of operations. Where the forward operation had a name the backward one
derives its own from it, so that it too may run in any order; unnamed stays unnamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from horovod.common.basics import rank
from horovod.common.placement import Tensor
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import OP_NAMES, Average, Sum

if TYPE_CHECKING:
    from horovod.common.collectives import Collectives


def _backward_name(name: str | None, part: str = "gradient") -> str | None:
    return None if name is None else name + "." + part


def allreduce_gradient(
    ops: Collectives[Tensor],
    gradient: Tensor,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Tensor:
    """Every rank's input reached every rank's output, so the gradients are reduced the way the inputs
    were.
    """
    return ops.allreduce(
        gradient,
        name=_backward_name(name),
        op=op,
        prescale_factor=prescale,
        postscale_factor=postscale,
        process_set=process_set,
    )


def grouped_allreduce_gradient(
    ops: Collectives[Tensor],
    gradients: Sequence[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[Tensor]:
    """As ``allreduce_gradient``, for a group and as a group."""
    return ops.grouped_allreduce(
        gradients,
        name=_backward_name(name),
        op=op,
        prescale_factor=prescale,
        postscale_factor=postscale,
        process_set=process_set,
    )


def allgather_gradient(
    ops: Collectives[Tensor], gradient: Tensor, name: str | None, rows: int, process_set: ProcessSet
) -> Tensor:
    """The average of the ranks' gradients, of which this rank takes the ``rows`` that it contributed."""
    return grouped_allgather_gradient(ops, [gradient], name, [rows], process_set)[0]


def grouped_allgather_gradient(
    ops: Collectives[Tensor],
    gradients: Sequence[Tensor],
    name: str | None,
    rows: Sequence[int],
    process_set: ProcessSet,
) -> list[Tensor]:
    """As ``allgather_gradient``, for a group and as a group."""
    reduced = ops.grouped_allreduce(gradients, name=_backward_name(name), op=Average, process_set=process_set)
    # With the rank, because one that has joined contributes nothing.
    me = rank()
    counts = ops.allgather_number_lists([me, *rows], _backward_name(name, "rows"), process_set)
    lower = [numbers[1:] for numbers in counts if numbers[0] < me]
    before = [sum(numbers[t] for numbers in lower) for t in range(len(rows))]
    return [
        ops.glue.rows(tensor, start, count)
        for tensor, start, count in zip(reduced, before, rows, strict=True)
    ]


def broadcast_gradient(
    ops: Collectives[Tensor], gradient: Tensor, name: str | None, root_rank: int, process_set: ProcessSet
) -> Tensor:
    """The average of the ranks' gradients on the root; zeros elsewhere, whose input had no influence."""
    reduced = ops.allreduce(gradient, name=_backward_name(name), op=Average, process_set=process_set)
    return reduced if rank() == root_rank else ops.glue.zeros_like(reduced)


def alltoall_gradient(
    ops: Collectives[Tensor],
    gradient: Tensor,
    name: str | None,
    received_splits: Sequence[int],
    sent_splits: Sequence[int],
    rows: int,
    process_set: ProcessSet,
) -> Tensor:
    """The gradients of the received rows go back to where the rows came from; of the ``rows`` of the input
    those that were not sent, or sent to a rank that has joined, had no influence.
    """
    returned, counts = ops.alltoall(gradient, received_splits, _backward_name(name), process_set)
    return ops.glue.placed(returned, ops.glue.integers(counts), _starts(sent_splits), rows)


def reducescatter_gradient(
    ops: Collectives[Tensor],
    gradient: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
    rows: int,
) -> Tensor:
    """The allgather of the ranks' gradients, times what each element was multiplied by (for Sum, in relation
    to Average, the size of the set).
    """
    factors = (prescale, postscale)
    return grouped_reducescatter_gradient(ops, [gradient], name, op, process_set, *factors, [rows])[0]


def grouped_reducescatter_gradient(
    ops: Collectives[Tensor],
    gradients: Sequence[Tensor],
    name: str | None,
    op: int,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
    rows: Sequence[int],
) -> list[Tensor]:
    """As ``reducescatter_gradient``, for a group and as a group."""
    factor = scatter_factor(op, process_set, prescale, postscale)
    scaled = [ops.glue.scaled(gradient, factor) for gradient in gradients]
    gathered = ops.grouped_allgather(scaled, _backward_name(name), process_set)
    if all(ops.glue.row_count(tensor) == count for tensor, count in zip(gathered, rows, strict=True)):
        return gathered
    return _with_rows_of_joined(ops, gathered, name, process_set, rows)


def _with_rows_of_joined(
    ops: Collectives[Tensor],
    gathered: Sequence[Tensor],
    name: str | None,
    process_set: ProcessSet,
    rows: Sequence[int],
) -> list[Tensor]:
    """Zeros where the rows of ranks would be that have joined: these have dropped their parts."""
    here = {
        numbers[0]
        for numbers in ops.allgather_number_lists([rank()], _backward_name(name, "ranks"), process_set)
    }
    members = process_set.ranks or []
    whole = []
    for tensor, count in zip(gathered, rows, strict=True):
        even, more = divmod(count, len(members))
        parts = [even + (position < more) for position in range(len(members))]
        counts = [part if member in here else 0 for part, member in zip(parts, members, strict=True)]
        whole.append(ops.glue.placed(tensor, counts, _starts(parts), count))
    return whole


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(counts)][:-1]


def scatter_factor(op: int, process_set: ProcessSet, prescale: float, postscale: float) -> float:
    """What the gathered gradients of a reducescatter are multiplied by. ValueError for a reduction without a
    gradient.
    """
    if op not in (Average, Sum):
        raise ValueError(f"reducescatter has a gradient for Average and Sum, not for {OP_NAMES[op]}.")
    return prescale * postscale * ((process_set.size() or 1) if op == Sum else 1)
