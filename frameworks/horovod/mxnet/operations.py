"""The operations on MXNet's arrays and their gradients, without the arguments and checks of ``mpi_ops``.

MXNet needs to know how large an array is before an operation on it is handed to the engine. So for allgather
and alltoall, whose results have a size that the other ranks decide, the ranks tell each other how many rows
they have while the function is called, which waits for the other ranks to call it too, but not for MXNet's
engine; the rows themselves follow asynchronously. What the ranks disagree about is raised by the call, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from horovod.common import basics
from horovod.common.collective.gradients import (
    NONLINEAR,
    gradient_op,
    nonlinear_gradients,
    scatter_factor,
)
from horovod.common.collective.operations import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.common.exceptions import TensorMismatchError
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.reduce_ops import Sum
from horovod.common.set_agreement import exchange, listed
from horovod.mxnet.autograd import differentiable
from horovod.mxnet.engine import Options, push
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import new, on_host, rows, zeros


def reduced(tensors: Sequence[Any], options: Options) -> list[Any]:
    """The reductions of all ranks' arrays, as one operation, in new arrays. Not differentiable."""
    given = [on_host(tensor) for tensor in tensors]
    results = [new(tensor.shape, tensor) for tensor in given]
    push(ALLREDUCE, given, results, options)
    return _back(results, tensors)


def overwrite(kind: int, tensors: Sequence[Any], options: Options, root: int = 0) -> None:
    """Runs an operation on arrays in place, as one."""
    given = [on_host(tensor) for tensor in tensors]
    push(kind, given, given, options, root)
    with mx.autograd.pause():
        for tensor, result in zip(tensors, given, strict=True):
            if result is not tensor:
                result.copyto(tensor)


def allreduce(tensors: Sequence[Any], options: Options) -> list[Any]:
    """``reduced``, differentiable."""

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """Every rank's input reached every rank's output."""
        if options.op not in NONLINEAR:
            return reduced(gradients, options.named(name))

        def reduce(some: Sequence[Any], op: int, label: str) -> list[Any]:
            how = options.named(f"{name}.{label}")._replace(op=op, prescale=1.0, postscale=1.0)
            return reduced(some, how)

        factors = options.prescale, options.postscale
        plain = [tensor.as_nd_ndarray() for tensor in tensors]  # as MXNet gives gradients, also of mx.np
        return nonlinear_gradients(options.op, plain, gradients, factors, reduce, _equals)

    return differentiable(lambda given: reduced(given, options), tensors, options.name, backward)


def _equals(tensor: Any, other: Any) -> Any:
    return (tensor == other).astype(tensor.dtype)


def broadcast(tensor: Any, root_rank: int, options: Options) -> Any:
    """A copy of the array of ``root_rank``."""

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = [on_host(each) for each in given]
        results = [new(each.shape, each) for each in sent]
        push(BROADCAST, sent, results, options, root_rank)
        return _back(results, given)

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The average of the ranks' gradients on the root; zeros elsewhere, whose input had no influence."""
        averages = reduced(gradients, options.named(name)._replace(op=gradient_op()))
        is_root = basics.rank() == root_rank
        return averages if is_root else [zeros(each.shape, each) for each in averages]

    return differentiable(forward, [tensor], options.name, backward)[0]


def allgather(tensors: Sequence[Any], options: Options) -> list[Any]:
    """The rows of all ranks' arrays, in rank order."""
    counts = _of_all_ranks("allgather", tensors, [tensor.shape[0] for tensor in tensors], options)
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    lower = [counts[rank] for rank in counts if rank < basics.rank()]
    starts = [sum(of_rank[t] for of_rank in lower) for t in range(len(tensors))]

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = [on_host(tensor) for tensor in given]
        results = [new((total, *t.shape[1:]), t) for total, t in zip(totals, sent, strict=True)]
        push(ALLGATHER, sent, results, options)
        return _back(results, given)

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The average of the ranks' gradients, of which this rank takes the rows that it contributed."""
        averages = reduced(gradients, options.named(name)._replace(op=gradient_op()))
        return [
            rows(average, start, tensor.shape[0])
            for average, start, tensor in zip(averages, starts, tensors, strict=True)
        ]

    return differentiable(forward, tensors, options.name, backward)


def alltoall(tensor: Any, sent: Sequence[int], options: Options) -> tuple[Any, list[int]]:
    """The rows that this rank receives where it sends so many to each rank; and how many from each."""
    members = options.process_set.ranks or [0]
    position = members.index(basics.rank())
    counts = _of_all_ranks("alltoall", [tensor], sent, options)
    received = [counts[member][position] if member in counts else 0 for member in members]

    def forward(given: Sequence[Any]) -> list[Any]:
        return [_exchanged(given[0], sent, received, sum(received), options)]

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The gradients of the received rows go back to where the rows came from."""
        return [_exchanged(gradients[0], received, sent, tensor.shape[0], options.named(name))]

    return differentiable(forward, [tensor], options.name, backward)[0], received


def reducescatter(tensors: Sequence[Any], options: Options) -> list[Any]:
    """This rank's rows of the reductions of all ranks' arrays."""
    process_set = options.process_set

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = [on_host(tensor) for tensor in given]
        results = [new((_part(t.shape[0], process_set)[1], *t.shape[1:]), t) for t in sent]
        push(REDUCESCATTER, sent, results, options)
        return _back(results, given)

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The parts of all ranks put together, times a factor. As a sum, because that has a size known before
        also when a rank has joined meanwhile, whose part is missing.
        """
        factor = scatter_factor(options.op, process_set, options.prescale, options.postscale)
        shapes = [tensor.shape for tensor in tensors]
        parts = [_placed(part, shape, process_set) for part, shape in zip(gradients, shapes, strict=True)]
        return reduced(parts, Options(name, process_set, options.priority, Sum, 1.0, factor))

    return differentiable(forward, tensors, options.name, backward)


def _back(results: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """The results on the devices of ``tensors``."""
    return [result.as_in_context(tensor.context) for result, tensor in zip(results, tensors, strict=True)]


def _of_all_ranks(
    kind: str, tensors: Sequence[Any], numbers: Sequence[int], options: Options
) -> dict[int, list[int]]:
    """The numbers of all ranks that have not joined, by rank. Raises TensorMismatchError, with one text on
    every rank, when the ranks' arrays differ in number, in type or in the shape of a row.
    """
    wanted = ", ".join(_without_rows(tensor) for tensor in tensors)
    number = check_process_set(options.process_set)
    told = exchange([wanted, list(numbers)], f"{options.name}.rows", number)
    descriptions = {rank: theirs for rank, (theirs, _) in told.items()}
    if len(set(descriptions.values())) > 1:
        raise TensorMismatchError(
            f"Mismatched {kind} arrays of {options.name!r} (type, and shape without the first dimension): "
            f"{listed(descriptions)}. They must be equal on all ranks."
        )
    return {rank: theirs for rank, (_, theirs) in told.items()}


def _without_rows(tensor: Any) -> str:
    return f"{numpy.dtype(tensor.dtype).name} [{', '.join(['*', *map(str, tensor.shape[1:])])}]"


def _exchanged(
    tensor: Any, sent: Sequence[int], received: Sequence[int], row_count: int, options: Options
) -> Any:
    """An array of ``row_count`` rows: what the ranks have sent, each in its place, and zeros otherwise."""
    given = on_host(tensor)
    result = new((row_count, *given.shape[1:]), given)
    push(ALLTOALL, [given], [result], options, splits=sent, sources=received)
    return result.as_in_context(tensor.context)


def _part(rows: int, process_set: ProcessSet) -> tuple[int, int]:
    """Where this rank's part of ``rows`` starts, and how many rows it has."""
    size, position = process_set.size() or 1, process_set.rank() or 0
    each, more = divmod(rows, size)
    return position * each + min(position, more), each + (position < more)


def _placed(part: Any, shape: Sequence[int], process_set: ProcessSet) -> Any:
    """This rank's part among zeros."""
    whole = zeros(shape, part)
    start, count = _part(shape[0], process_set)
    if count and part.size:
        whole[start : start + count] = part
    return whole
