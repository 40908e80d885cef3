"""Allreduce and its forms. What they share with the other operations is said in ``mpi_ops``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common.native import ALLREDUCE
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import resolve_op
from horovod.mxnet.autograd import differentiable
from horovod.mxnet.engine import Options, push
from horovod.mxnet.names import numbered
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import check_one_device, dtype_number, new, on_host


def reduced(tensors: Sequence[Any], options: Options) -> list[Any]:
    """The reductions of all ranks' arrays, as one operation, in new arrays. Not differentiable."""
    given = [on_host(tensor) for tensor in tensors]
    results = [new(tensor.shape, tensor) for tensor in given]
    push(ALLREDUCE, given, results, options)
    return [result.as_in_context(tensor.context) for result, tensor in zip(results, tensors, strict=True)]


def overwrite(kind: int, tensors: Sequence[Any], options: Options, root: int = 0) -> None:
    """Runs an operation on arrays in place, as one."""
    given = [on_host(tensor) for tensor in tensors]
    push(kind, given, given, options, root)
    with mx.autograd.pause():
        for tensor, result in zip(tensors, given, strict=True):
            if result is not tensor:
                result.copyto(tensor)


def _checked(tensors: Iterable[Any], process_set: ProcessSet) -> list[Any]:
    tensors = list(tensors)
    check_process_set(process_set)
    for tensor in tensors:
        dtype_number(tensor)
    check_one_device(tensors)
    return tensors


def _run(kind: str, tensors: list[Any], name: str | None, options: Options) -> list[Any]:
    options = options.named(name or numbered(kind, options.process_set.process_set_id or 0))

    def backward(gradients: list[Any], name: str) -> list[Any]:
        """Every rank's input reached every rank's output."""
        return reduced(gradients, options.named(name))

    return differentiable(lambda given: reduced(given, options), tensors, options.name, backward)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces ``tensor`` over all ranks into a new array of its shape and type. Differentiable.

    ``op``: Average (default), Sum, Min, Max, Product or, for floating-point arrays, Adasum; ``average`` is
    the deprecated form of it. Every element is multiplied by ``prescale_factor`` before and by
    ``postscale_factor`` after the reduction; both must be equal on all ranks. The gradient is an allreduce
    with the same arguments.
    """
    options = Options("", process_set, priority, resolve_op(op, average), prescale_factor, postscale_factor)
    return _run("allreduce", _checked([tensor], process_set), name, options)[0]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces ``tensor`` over all ranks into itself and returns it. Not differentiable. Arguments as for
    ``allreduce``.
    """
    options = Options("", process_set, priority, resolve_op(op, average), prescale_factor, postscale_factor)
    tensors = _checked([tensor], process_set)
    name = name or numbered("allreduce", process_set.process_set_id or 0)
    overwrite(ALLREDUCE, tensors, options.named(name))
    return tensor


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """Reduces ``tensors`` as one operation, all or none, into new arrays. All must be on one device.
    Differentiable. See ``allreduce``.
    """
    options = Options("", process_set, priority, resolve_op(op, average), prescale_factor, postscale_factor)
    return _run("grouped_allreduce", _checked(tensors, process_set), name, options)


def grouped_allreduce_(
    tensors: Iterable[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """Reduces ``tensors`` as one operation, all or none, each into itself, and returns them. All must be on
    one device. Not differentiable. Arguments as for ``allreduce``.
    """
    options = Options("", process_set, priority, resolve_op(op, average), prescale_factor, postscale_factor)
    given = _checked(tensors, process_set)
    name = name or numbered("grouped_allreduce", process_set.process_set_id or 0)
    overwrite(ALLREDUCE, given, options.named(name))
    return given
