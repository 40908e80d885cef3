"""The operations on arrays (``mxnet.nd`` or ``mxnet.np``). Existing scripts import them, and what every
adapter offers, under this module's name; nothing here depends on MPI.

They are asynchronous operations of MXNet's engine: a call returns at once, the operation starts when its
input has been computed, and whatever reads the result waits for it, as with every other array. Only allgather
and alltoall wait for the other ranks to call them. None waits for the content of an array.

``name`` identifies an operation on all ranks. One without a name is given one by counting, so all ranks must
call those of a kind, on a process set, in one order. Operations of one name run in turn. ``priority``: of
operations that are ready at the same time those with the highest go first, in MXNet's engine and in the core.

Errors: ValueError or TypeError at once for what this caller did wrong; an MXNetError, where the result is
first waited for, when the ranks disagree about shape, type, reduction, root or factors, or when a rank is
gone. Allgather and alltoall, which have waited for the other ranks, raise TensorMismatchError at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from horovod.common import basics as _basics  # noqa: F401  # scripts import it
from horovod.common.collective import exports as _exports
from horovod.common.collective.collectives import check_root
from horovod.common.collective.exports import *
from horovod.common.collective.gathers import resolve_splits, scatter_op
from horovod.common.collective.operations import ALLREDUCE, BROADCAST
from horovod.common.process_sets import check_process_set
from horovod.common.reduce_ops import handle_average_backwards_compatibility, resolve_op
from horovod.mxnet import operations
from horovod.mxnet.barriers import barrier, join, remove_process_set  # noqa: F401  # not the common one
from horovod.mxnet.engine import Options, numbered
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import NDArray, check_one_device, dtype_number


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
    """Reduces an array over all ranks into a new one. Differentiable: the gradient is an allreduce with the
    same arguments.

    Args:
        tensor: Of equal shape and type on all ranks.
        average: The deprecated form of ``op``.
        name: Of the operation, equal on all ranks.
        priority: The highest goes first.
        prescale_factor: Each element is multiplied by it before the reduction; equal on all ranks.
        postscale_factor: Each element is multiplied by it afterwards; equal on all ranks.
        process_set: The ranks that take part.
        op: Average (default), Sum, Min, Max, Product or, for floating-point arrays, Adasum.

    Returns:
        The reduction, of the shape and type of ``tensor``.
    """
    op = resolve_op(op, average)
    tensors = _checked([tensor], process_set)
    options = _options("allreduce", name, priority, process_set, op, prescale_factor, postscale_factor)
    return operations.allreduce(tensors, options)[0]


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
    """Reduces an array over all ranks into itself. Not differentiable. Arguments as for ``allreduce``.

    Returns:
        ``tensor``.
    """
    op = resolve_op(op, average)
    tensors = _checked([tensor], process_set)
    options = _options("allreduce", name, priority, process_set, op, prescale_factor, postscale_factor)
    operations.overwrite(ALLREDUCE, tensors, options)
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
    """Reduces arrays as one operation, all or none, into new ones. Differentiable.

    Args:
        tensors: The arrays, all on one device.
        average, name, priority, prescale_factor, postscale_factor, process_set, op: As for ``allreduce``.

    Returns:
        The reductions.
    """
    op = resolve_op(op, average)
    given = _checked(tensors, process_set)
    scaling = (prescale_factor, postscale_factor)
    options = _options("grouped_allreduce", name, priority, process_set, op, *scaling)
    return operations.allreduce(given, options)


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
    """Reduces arrays as one operation, all or none, each into itself. Not differentiable. Arguments as for
    ``grouped_allreduce``.

    Returns:
        ``tensors``.
    """
    op = resolve_op(op, average)
    given = _checked(tensors, process_set)
    scaling = (prescale_factor, postscale_factor)
    options = _options("grouped_allreduce", name, priority, process_set, op, *scaling)
    operations.overwrite(ALLREDUCE, given, options)
    return given


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the arrays of all ranks along the first dimension. Waits until all ranks have called it.
    Differentiable: the gradient is the average over all ranks, of which each takes the rows that it
    contributed.

    Args:
        tensor: The first dimension may differ between ranks (0 too), the others and the type not.
        name: Of the operation, equal on all ranks.
        priority: The highest goes first.
        process_set: The ranks that take part.

    Returns:
        The rows of all ranks, in rank order.

    Raises:
        TensorMismatchError: At once, where types or shapes of rows differ.
    """
    tensors = _checked([tensor], process_set, "allgather concatenates along")
    return operations.allgather(tensors, _options("allgather", name, priority, process_set))[0]


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """An allgather of each of several arrays as one operation, all or none. Differentiable.

    Args:
        tensors: The arrays, all on one device.
        name, priority, process_set: As for ``allgather``.

    Returns:
        For each of ``tensors`` the rows of all ranks.

    Raises:
        TensorMismatchError: At once, where types or shapes of rows differ.
    """
    given = _checked(tensors, process_set, "allgather concatenates along")
    if not given:
        return []
    return operations.allgather(given, _options("grouped_allgather", name, priority, process_set))


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Copies the array of one rank. Differentiable: the gradient is the average over all ranks on the root,
    and zero elsewhere.

    Args:
        tensor: Of equal shape and type on all ranks.
        root_rank: A rank of the job, not a position in ``process_set``, but one of its members.
        name: Of the operation, equal on all ranks.
        priority: The highest goes first.
        process_set: The ranks that take part.

    Returns:
        A copy of the array of ``root_rank``.
    """
    (given,) = _checked([tensor], process_set)
    check_root(root_rank, process_set)
    return operations.broadcast(given, root_rank, _options("broadcast", name, priority, process_set))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Overwrites an array with that of one rank. Not differentiable. Arguments as for ``broadcast``.

    Returns:
        ``tensor``.
    """
    tensors = _checked([tensor], process_set)
    check_root(root_rank, process_set)
    options = _options("broadcast", name, priority, process_set)
    operations.overwrite(BROADCAST, tensors, options, root_rank)
    return tensor


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank some rows of an array. Waits until all ranks have called it, and for ``splits`` when
    these are an array of MXNet. Differentiable: each rank gets back the gradients of the rows that it sent;
    rows that were not sent have gradient 0.

    Args:
        tensor: Type and shape of its rows are equal on all ranks.
        splits: How many rows go to each rank of the process set, in its order: integers of any type, as a
            list or array. Rows beyond their sum are not sent. None: all get equally many, so the first
            dimension must be divisible by the size of the set.
        name: Of the operation, equal on all ranks.
        priority: The highest goes first.
        process_set: The ranks that take part.

    Returns:
        The rows received, in the order of the ranks. With ``splits`` (rows, how many came from each rank).

    Raises:
        TensorMismatchError: At once, where type or shape of the rows differ.
    """
    (given,) = _checked([tensor], process_set, "alltoall distributes along")
    wanted = [] if splits is None else _integers(splits)
    sent = resolve_splits(wanted, given.shape[0], len(process_set.ranks or [0]))
    rows, received = operations.alltoall(given, sent, _options("alltoall", name, priority, process_set))
    if splits is None:
        return rows
    with mx.autograd.pause():
        sources = mx.nd.array(received, ctx=given.context, dtype="int32")
        return rows, sources.as_np_ndarray() if isinstance(given, mx.np.ndarray) else sources


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces an array over all ranks and deals out the rows of the result, in rank order and as evenly as
    possible: of d rows the first d % size ranks get one more.

    Differentiable for Average and Sum. For Average the gradient is the ranks' gradients put together, times
    both factors; for Sum it is that times the size of the set.

    Args:
        tensor: Of equal shape and type on all ranks.
        op: Average, Sum, Min, Max or Product.
        name: Of the operation, equal on all ranks.
        priority: The highest goes first.
        process_set: The ranks that take part.
        prescale_factor: Each element is multiplied by it before the reduction; equal on all ranks.
        postscale_factor: Each element is multiplied by it afterwards; equal on all ranks.

    Returns:
        This rank's rows.
    """
    op = scatter_op(op)
    tensors = _checked([tensor], process_set, "reducescatter deals out")
    options = _options("reducescatter", name, priority, process_set, op, prescale_factor, postscale_factor)
    return operations.reducescatter(tensors, options)[0]


def grouped_reducescatter(
    tensors: Iterable[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """A reducescatter of each of several arrays as one operation, all or none. Differentiable.

    Args:
        tensors: The arrays, all on one device.
        op, name, priority, process_set, prescale_factor, postscale_factor: As for ``reducescatter``.

    Returns:
        This rank's rows of each.
    """
    op = scatter_op(op)
    given = _checked(tensors, process_set, "reducescatter deals out")
    scaling = (prescale_factor, postscale_factor)
    options = _options("grouped_reducescatter", name, priority, process_set, op, *scaling)
    return operations.reducescatter(given, options)


def _options(
    kind: str,
    name: str | None,
    priority: int,
    process_set: ProcessSet,
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Options:
    name = name or numbered(kind, process_set.process_set_id or 0)
    return Options(name, process_set, priority, op, prescale, postscale)


def _checked(tensors: Iterable[Any], process_set: ProcessSet, what: str = "") -> list[Any]:
    """The arrays as a list. ``what``: how the operation uses the first dimension, where it needs one."""
    tensors = list(tensors)
    check_process_set(process_set)
    for tensor in tensors:
        dtype_number(tensor)
        if what and not tensor.shape:
            raise ValueError(f"{what} the first dimension and a scalar has none; reshape it to (1,).")
    check_one_device(tensors)
    return tensors


def _integers(splits: Any) -> list[int]:
    values = numpy.asarray(splits.asnumpy() if isinstance(splits, NDArray) else splits)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise ValueError(f"splits must be a one-dimensional list or array of integers, not {splits!r:.100}")
    return [int(value) for value in values]


__all__ = [*_exports.public_names(globals()), "handle_average_backwards_compatibility"]
