"""The operations on dense tensors, eagerly and in graphs; all differentiable (``autograd``). Existing
scripts import them, and what every adapter offers, under this module's name; nothing here depends on MPI.

Names: eagerly, an operation without a name is counted, so all ranks run those in one order; a name lets it
run in any. In a graph the name of the node matches it across ranks, so the operations of one
``tf.function`` may run in any order, and do; ``name`` and ``ignore_name_scope`` say what the node is called.

Errors appear where TensorFlow reports those of its own operations: FailedPreconditionError when the ranks
disagree about an operation (on all of them, and the next operation works), UnknownError when the job has
lost a rank or was shut down, InvalidArgumentError for what this rank did wrong; ValueError for what can be
seen before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import basics as _basics  # scripts import it
from horovod.common.collective import exports as _exports
from horovod.common.collective.collectives import check_root
from horovod.common.collective.exports import *
from horovod.common.process_sets import check_process_set
from horovod.common.reduce_ops import handle_average_backwards_compatibility
from horovod.common.util import (  # noqa: F401  # scripts import them, and the next
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2  # noqa: F401
from horovod.tensorflow.graph import node_names
from horovod.tensorflow.native import library
from horovod.tensorflow.topology import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)


def _bits(factor: float) -> int:
    """The number itself, where the attribute, of 32 bits, would round it; else 0."""
    (rounded,) = struct.unpack("f", struct.pack("f", factor))
    (bits,) = struct.unpack("q", struct.pack("d", factor))
    return 0 if rounded == factor else bits


def factor_of(op: Any, which: str) -> float:
    """The factor, prescale or postscale, of an operation that ``_reduction`` has described."""
    bits = op.get_attr(f"{which}_bits")
    return struct.unpack("d", struct.pack("q", bits))[0] if bits else op.get_attr(f"{which}_factor")


def _reduction(op: int, prescale: float, postscale: float) -> dict[str, Any]:
    prescale, postscale = float(prescale), float(postscale)
    return {
        "reduce_op": op,
        "prescale_factor": prescale,
        "postscale_factor": postscale,
        "prescale_bits": _bits(prescale),
        "postscale_bits": _bits(postscale),
    }


def _by_type(
    tensors: Sequence[Any], run: Callable[[list[tf.Tensor], str], list[tf.Tensor]]
) -> list[tf.Tensor]:
    """Runs the tensors of each type as one operation: TensorFlow's lists have one type."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    places: dict[tf.DType, list[int]] = {}
    for index, tensor in enumerate(given):
        places.setdefault(tensor.dtype, []).append(index)
    results: list[Any] = [None] * len(given)
    for dtype, indices in places.items():
        part = "" if len(places) == 1 else "_" + dtype.name
        for index, result in zip(indices, run([given[i] for i in indices], part), strict=True):
            results[index] = result
    return results


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else name + part


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The reduction of all ranks' tensors, of equal shape and type, on every rank."""
    return library.horovod_allreduce(
        tensor,
        process_set_id=check_process_set(process_set),
        **_reduction(op, prescale_factor, postscale_factor),
        **node_names("HorovodAllreduce", name, ignore_name_scope),
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """An allreduce of each tensor; those of one type are one operation, all or none."""
    number = check_process_set(process_set)
    reduction = _reduction(op, prescale_factor, postscale_factor)

    def run(some: list[tf.Tensor], part: str) -> list[tf.Tensor]:
        node = node_names("HorovodGroupedAllreduce", _part(name, part), ignore_name_scope)
        return library.horovod_grouped_allreduce(some, process_set_id=number, **reduction, **node)

    return _by_type(tensors, run)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the tensors of all ranks along the first dimension. Differentiable: the gradient is the
    average over all ranks, of which each takes the rows that it contributed.

    Args:
        tensor: The first dimension may differ between ranks, the others and the type not.
        name: Identifies the operation on all ranks. Without it, eager operations of one kind are counted,
            and in a graph the name of the node counts.
        ignore_name_scope: The name is used as it is, without the name scope around the call.
        process_set: The ranks that take part.

    Returns:
        The rows of all ranks, in rank order.
    """
    return library.horovod_allgather(
        tensor,
        process_set_id=check_process_set(process_set),
        **node_names("HorovodAllgather", name, ignore_name_scope),
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """An allgather of each of several tensors; those of one type are one operation, all or none.

    Args:
        tensors: The tensors.
        name, ignore_name_scope, process_set: As for ``allgather``.

    Returns:
        For each of ``tensors`` the rows of all ranks.
    """
    number = check_process_set(process_set)

    def run(some: list[tf.Tensor], part: str) -> list[tf.Tensor]:
        node = node_names("HorovodGroupedAllgather", _part(name, part), ignore_name_scope)
        return library.horovod_grouped_allgather(some, process_set_id=number, **node)

    return _by_type(tensors, run)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Copies the tensor of one rank. Differentiable: the gradient is the average over all ranks on the root,
    and zero elsewhere.

    Args:
        tensor: Of equal shape and type on all ranks.
        root_rank: A rank of the job, not a position in ``process_set``, but one of its members.
        name: Identifies the operation on all ranks. Without it, eager operations of one kind are counted,
            and in a graph the name of the node counts.
        ignore_name_scope: The name is used as it is, without the name scope around the call.
        process_set: The ranks that take part.

    Returns:
        The tensor of ``root_rank``.
    """
    number = check_process_set(process_set)
    check_root(root_rank, process_set)
    node = node_names("HorovodBroadcast", name, ignore_name_scope)
    return library.horovod_broadcast(tensor, root_rank=root_rank, process_set_id=number, **node)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives variables the values that they have on one rank.

    Args:
        variables: In an order that is equal on all ranks.
        root_rank: That rank.
        name: Begins the names of the operations.
        process_set: The ranks that take part.

    Returns:
        The variables; in graphs of TensorFlow 1, the operations that assign them.
    """
    results = []
    for index, variable in enumerate(variables):
        value = broadcast(
            tf.convert_to_tensor(variable), root_rank, _part(name, f".{index}"), process_set=process_set
        )
        assigned = variable.assign(value)
        results.append(variable if tf.executing_eagerly() or tf.inside_function() else assigned)
    return results


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Sends each rank some rows of a tensor. Differentiable: each rank gets back the gradients of its rows.

    Args:
        tensor: Type and shape of its rows are equal on all ranks.
        splits: How many rows go, in turn, to each rank of the process set: integers. None: all get equally
            many.
        name: Identifies the operation on all ranks. Without it, eager operations of one kind are counted,
            and in a graph the name of the node counts.
        ignore_name_scope: The name is used as it is, without the name scope around the call.
        process_set: The ranks that take part.

    Returns:
        The rows received, in rank order. With ``splits`` (rows, how many came from each rank).

    Raises:
        ValueError: ``splits`` are no integers.
    """
    received, sources = library.horovod_alltoall(
        tensor,
        _counts(splits),
        process_set_id=check_process_set(process_set),
        **node_names("HorovodAlltoall", name, ignore_name_scope),
    )
    return received if splits is None else (received, sources)


def _counts(splits: Any) -> tf.Tensor:
    if splits is None:
        return tf.constant([], tf.int32)
    counts = tf.convert_to_tensor(splits)
    if not counts.dtype.is_integer and counts.shape.num_elements() != 0:
        raise ValueError(f"splits must be integers, not {counts.dtype.name}")
    return tf.cast(counts, tf.int32)


def join() -> tf.Tensor:
    """Says that this rank has no more data, and waits until every rank has said so. Until then it takes part
    in every operation with data that changes nothing (zeros in a sum, no rows in an allgather).

    Returns:
        The last rank to say so.
    """
    with _after_all_collectives():
        last = library.horovod_join()
    if tf.executing_eagerly():  # it would take a function of Python in a graph
        _basics.note_join()
    return last


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Waits until every rank of a process set has called it.

    Args:
        process_set: These ranks.

    Returns:
        In a graph the operation.
    """
    with _after_all_collectives():
        node = node_names("HorovodBarrier", None, False)
        return library.horovod_barrier(process_set_id=check_process_set(process_set), **node)


def _after_all_collectives() -> Any:
    """In a graph the operations run in any order; a barrier comes after those that stand before it."""
    if tf.executing_eagerly():
        return tf.control_dependencies(None)
    graph = tf.compat.v1.get_default_graph()
    return tf.control_dependencies([op for op in graph.get_operations() if op.type.startswith("Horovod")])


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's share of the rows of the reduction of all ranks' tensors; the first ranks get one more when
    the rows cannot be dealt out evenly.
    """
    return library.horovod_reducescatter(
        tensor,
        process_set_id=check_process_set(process_set),
        **_reduction(op, prescale_factor, postscale_factor),
        **node_names("HorovodReducescatter", name, ignore_name_scope),
    )


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """A reducescatter of each tensor; those of one type are one operation, all or none."""
    number = check_process_set(process_set)
    reduction = _reduction(op, prescale_factor, postscale_factor)

    def run(some: list[tf.Tensor], part: str) -> list[tf.Tensor]:
        node = node_names("HorovodGroupedReducescatter", _part(name, part), ignore_name_scope)
        return library.horovod_grouped_reducescatter(some, process_set_id=number, **reduction, **node)

    return _by_type(tensors, run)


__all__ = [
    *_exports.public_names(globals()),
    "handle_average_backwards_compatibility",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
