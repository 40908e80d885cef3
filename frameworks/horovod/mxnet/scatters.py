"""Reducescatter and its grouped form. What they share with the other operations is said in ``mpi_ops``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common.gradients import scatter_factor
from horovod.common.native import REDUCESCATTER
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Average, Sum
from horovod.common.scatters import scatter_op
from horovod.mxnet.autograd import differentiable
from horovod.mxnet.engine import Options, push
from horovod.mxnet.names import numbered
from horovod.mxnet.reductions import reduced
from horovod.mxnet.tensors import check_one_device, dtype_number, new, on_host, zeros


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


def _scatter(kind: str, tensors: Iterable[Any], name: str | None, options: Options) -> list[Any]:
    tensors, process_set = list(tensors), options.process_set
    check_process_set(process_set)
    for tensor in tensors:
        dtype_number(tensor)
        if not tensor.shape:
            raise ValueError(
                "reducescatter deals out the first dimension and a scalar has none; reshape it to (1,)."
            )
    check_one_device(tensors)
    options = options.named(name or numbered(kind, process_set.process_set_id or 0))

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = [on_host(tensor) for tensor in given]
        results = [new((_part(t.shape[0], process_set)[1], *t.shape[1:]), t) for t in sent]
        push(REDUCESCATTER, sent, results, options)
        return [result.as_in_context(tensor.context) for result, tensor in zip(results, given, strict=True)]

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """The parts of all ranks put together, times a factor. As a sum, because that has a size known before
        also when a rank has joined meanwhile, whose part is missing.
        """
        factor = scatter_factor(options.op, process_set, options.prescale, options.postscale)
        shapes = [tensor.shape for tensor in tensors]
        parts = [_placed(part, shape, process_set) for part, shape in zip(gradients, shapes, strict=True)]
        return reduced(parts, Options(name, process_set, options.priority, Sum, 1.0, factor))

    return differentiable(forward, tensors, options.name, backward)


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces ``tensor`` over all ranks and returns this rank's rows of the result.

    The first dimension d is dealt out in rank order as evenly as possible: the first d % size ranks get one
    row more. ``op``: Average, Sum, Min, Max or Product. Every element is multiplied by ``prescale_factor``
    before and by ``postscale_factor`` after the reduction.

    Differentiable for Average and Sum. For Average the gradient is the ranks' gradients put together, times
    both factors; for Sum it is that times the size of the set.
    """
    options = Options("", process_set, priority, scatter_op(op), prescale_factor, postscale_factor)
    return _scatter("reducescatter", [tensor], name, options)[0]


def grouped_reducescatter(
    tensors: Iterable[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """A reducescatter of each of ``tensors`` as one operation, all or none. All must be on one device.
    Differentiable. See ``reducescatter``.
    """
    options = Options("", process_set, priority, scatter_op(op), prescale_factor, postscale_factor)
    return _scatter("grouped_reducescatter", tensors, name, options)
