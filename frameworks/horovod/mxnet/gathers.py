"""Operations whose results have a size that the other ranks decide: allgather and alltoall.

MXNet needs to know how large an array is before an operation on it is handed to the engine. So the ranks tell
each other how many rows they have while the function is called, which waits for the other ranks to call it
too, but not for MXNet's engine; the rows themselves follow asynchronously. What the ranks disagree about is
raised by the call, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from horovod.common import basics
from horovod.common.exceptions import TensorMismatchError
from horovod.common.gathers import resolve_splits
from horovod.common.native import ALLGATHER, ALLTOALL
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.set_agreement import exchange, listed
from horovod.mxnet.autograd import differentiable
from horovod.mxnet.engine import Options, push
from horovod.mxnet.names import numbered
from horovod.mxnet.native import mx
from horovod.mxnet.reductions import reduced
from horovod.mxnet.tensors import NDArray, check_one_device, dtype_number, new, on_host, rows


def _checked(tensors: Iterable[Any], process_set: ProcessSet, what: str) -> list[Any]:
    tensors = list(tensors)
    check_process_set(process_set)
    for tensor in tensors:
        dtype_number(tensor)
        if not tensor.shape:
            raise ValueError(f"{what} along the first dimension and a scalar has none; reshape it to (1,).")
    check_one_device(tensors)
    return tensors


def _everybodys(
    kind: str, tensors: Sequence[Any], numbers: Sequence[int], options: Options
) -> dict[int, list[int]]:
    """The numbers of all ranks that have not joined, by rank. Raises TensorMismatchError, with one text on
    every rank, when the ranks' arrays differ in number, in type or in the shape of a row.
    """
    wanted = ", ".join(_without_rows(tensor) for tensor in tensors)
    number = check_process_set(options.process_set)
    told = exchange([wanted, list(numbers)], f"{options.name}.rows", number)
    everybodys = {rank: theirs for rank, (theirs, _) in told.items()}
    if len(set(everybodys.values())) > 1:
        raise TensorMismatchError(
            f"Mismatched {kind} arrays of {options.name!r} (type, and shape without the first dimension): "
            f"{listed(everybodys)}. They must be equal on all ranks."
        )
    return {rank: theirs for rank, (_, theirs) in told.items()}


def _without_rows(tensor: Any) -> str:
    return f"{numpy.dtype(tensor.dtype).name} [{', '.join(['*', *map(str, tensor.shape[1:])])}]"


def _gather(kind: str, tensors: list[Any], name: str | None, options: Options) -> list[Any]:
    if not tensors:
        return []
    options = options.named(name or numbered(kind, options.process_set.process_set_id or 0))
    counts = _everybodys("allgather", tensors, [tensor.shape[0] for tensor in tensors], options)
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    lower = [counts[rank] for rank in counts if rank < basics.rank()]
    starts = [sum(of_rank[t] for of_rank in lower) for t in range(len(tensors))]

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = [on_host(tensor) for tensor in given]
        results = [new((total, *t.shape[1:]), t) for total, t in zip(totals, sent, strict=True)]
        push(ALLGATHER, sent, results, options)
        return [result.as_in_context(tensor.context) for result, tensor in zip(results, given, strict=True)]

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The average of the ranks' gradients, of which this rank takes the rows that it contributed."""
        averages = reduced(gradients, options.named(name)._replace(op=Average))
        return [
            rows(average, start, tensor.shape[0])
            for average, start, tensor in zip(averages, starts, tensors, strict=True)
        ]

    return differentiable(forward, tensors, options.name, backward)


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the arrays of all ranks, in rank order, along the first dimension.

    The first dimension may differ between ranks (0 too); the others and the type must be equal, or
    TensorMismatchError is raised at once. Waits until all ranks have called it; see the text of this file.
    Differentiable: the gradient is the average over all ranks, of which each takes the rows that it
    contributed.
    """
    tensors = _checked([tensor], process_set, "allgather concatenates")
    return _gather("allgather", tensors, name, Options("", process_set, priority))[0]


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """An allgather of each of ``tensors`` as one operation, all or none. All must be on one device.
    Differentiable. See ``allgather``.
    """
    tensors = _checked(tensors, process_set, "allgather concatenates")
    return _gather("grouped_allgather", tensors, name, Options("", process_set, priority))


def _exchanged(
    tensor: Any, sent: Sequence[int], received: Sequence[int], row_count: int, options: Options
) -> Any:
    """An array of ``row_count`` rows: what the ranks have sent, each in its place, and zeros otherwise."""
    given = on_host(tensor)
    result = new((row_count, *given.shape[1:]), given)
    push(ALLTOALL, [given], [result], options, splits=sent, sources=received)
    return result.as_in_context(tensor.context)


def _integers(splits: Any) -> list[int]:
    values = numpy.asarray(splits.asnumpy() if isinstance(splits, NDArray) else splits)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise ValueError(f"splits must be a one-dimensional list or array of integers, not {splits!r:.100}")
    return [int(value) for value in values]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank some rows of ``tensor`` and returns the rows received, in the order of the ranks.

    ``splits``, integers of any type as a list or array: how many rows go to each rank of the process set, in
    its order; rows beyond their sum are not sent. None: all get equally many, so the first dimension must be
    divisible by the size of the set. With ``splits`` the result is (rows, how many came from each rank).
    Waits until all ranks have called it, see the text of this file, and for ``splits`` when these are an
    array of MXNet; TensorMismatchError at once where type or shape of the rows differ. Differentiable: each
    rank gets back the gradients of the rows that it sent; rows that were not sent have gradient 0.
    """
    _checked([tensor], process_set, "alltoall distributes")
    total, members = tensor.shape[0], process_set.ranks or [0]
    sent = resolve_splits([] if splits is None else _integers(splits), total, len(members))
    options = Options(name or numbered("alltoall", process_set.process_set_id or 0), process_set, priority)
    counts, position = _everybodys("alltoall", [tensor], sent, options), members.index(basics.rank())
    received = [counts[member][position] if member in counts else 0 for member in members]

    def forward(given: Sequence[Any]) -> list[Any]:
        return [_exchanged(given[0], sent, received, sum(received), options)]

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The gradients of the received rows go back to where the rows came from."""
        return [_exchanged(gradients[0], received, sent, total, options.named(name))]

    (result,) = differentiable(forward, [tensor], options.name, backward)
    if splits is None:
        return result
    with mx.autograd.pause():
        sources = mx.nd.array(received, ctx=tensor.context, dtype="int32")
        return result, sources.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else sources
