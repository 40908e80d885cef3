"""The gradients of the operations, in TensorFlow's terms. The rules are those of
``horovod.common.collective.gradients``, which cannot be used here: in a graph, sizes are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.collective.gradients import (
    NONLINEAR,
    gradient_op,
    nonlinear_gradients,
    scatter_factor,
)
from horovod.common.process_sets import ProcessSet, global_process_set, registered
from horovod.tensorflow.graph import equals
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    allgather,
    alltoall,
    factor_of,
    grouped_allgather,
)
from horovod.tensorflow.reductions import size_of
from horovod.tensorflow.topology import rank_op


def _process_set(op: Any) -> ProcessSet:
    return registered(op.get_attr("process_set_id"))


def _reduction(op: Any) -> dict[str, Any]:
    factors = {f"{which}_factor": factor_of(op, which) for which in ("prescale", "postscale")}
    return {"op": op.get_attr("reduce_op"), **factors}


def _exclusive_cumsum(counts: Any) -> tf.Tensor:
    return tf.cumsum(counts, exclusive=True)


def _placed(rows: tf.Tensor, counts: Any, starts: Any, shape: Any) -> tf.Tensor:
    """``counts[i]`` of ``rows`` from ``starts[i]`` on in turn, among zeros."""
    places = tf.ragged.range(starts, starts + counts).flat_values
    return tf.scatter_nd(places[:, tf.newaxis], rows, shape)


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce_gradient(op: Any, gradient: tf.Tensor) -> tf.Tensor:
    """Every rank's input reached every rank's output."""
    reduction = _reduction(op)
    if reduction["op"] in NONLINEAR:
        return _of_nonlinear(op, [gradient])[0]
    return _allreduce(gradient, process_set=_process_set(op), **reduction)


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.Tensor]:
    reduction = _reduction(op)
    if reduction["op"] in NONLINEAR:
        return _of_nonlinear(op, gradients)
    return _grouped_allreduce(gradients, process_set=_process_set(op), **reduction)


def _of_nonlinear(op: Any, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    reduction, process_set = _reduction(op), _process_set(op)

    def reduce(tensors: Sequence[tf.Tensor], by: int, _: str) -> list[tf.Tensor]:
        return _grouped_allreduce(tensors, op=by, process_set=process_set)

    factors = reduction["prescale_factor"], reduction["postscale_factor"]
    return nonlinear_gradients(reduction["op"], op.inputs, gradients, factors, reduce, equals)


@tf.RegisterGradient("HorovodAllgather")
def _allgather_gradient(op: Any, gradient: tf.Tensor) -> tf.Tensor:
    return _grouped_allgather_gradient(op, gradient)[0]


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """The average of the ranks' gradients, of which this rank takes the rows that it contributed."""
    process_set = _process_set(op)
    reduced = _grouped_allreduce(gradients, op=gradient_op(), process_set=process_set)
    counts = [tf.shape(tensor, tf.int64)[0] for tensor in op.inputs]
    # With the rank, because one that has joined contributes nothing.
    me = tf.cast(rank_op(), tf.int64)
    rows_of_all = allgather(tf.stack([me, *counts])[tf.newaxis], process_set=process_set)
    lower = tf.boolean_mask(rows_of_all, rows_of_all[:, 0] < me)
    starts = tf.unstack(tf.reduce_sum(lower[:, 1:], axis=0), num=len(counts))
    return [
        tensor[start : start + count] for tensor, start, count in zip(reduced, starts, counts, strict=True)
    ]


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast_gradient(op: Any, gradient: tf.Tensor) -> tf.Tensor:
    """The average of the ranks' gradients on the root; zeros elsewhere, whose input had no influence."""
    reduced = _allreduce(gradient, op=gradient_op(), process_set=_process_set(op))
    return tf.where(tf.equal(rank_op(), op.get_attr("root_rank")), reduced, tf.zeros_like(reduced))


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall_gradient(op: Any, gradient: tf.Tensor, _: Any) -> tuple[tf.Tensor, None]:
    """The gradients of the received rows go back to where the rows came from; rows that were not sent, or
    sent to a rank that has joined, had no influence.
    """
    process_set = _process_set(op)
    shape = tf.shape(op.inputs[0])
    size = size_of(process_set, tf.int32)
    given = op.inputs[1]
    sent = tf.cond(tf.size(given) > 0, lambda: given, lambda: tf.fill([size], shape[0] // size))
    returned, counts = alltoall(gradient, op.outputs[1], process_set=process_set)
    return _placed(returned, counts, _exclusive_cumsum(sent), shape), None


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter_gradient(op: Any, gradient: tf.Tensor) -> tf.Tensor:
    return _grouped_reducescatter_gradient(op, gradient)[0]


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """The allgather of the ranks' gradients, times what each element was multiplied by (for Sum, in relation
    to Average, the size of the set).
    """
    reduction, process_set = _reduction(op), _process_set(op)
    size = size_of(process_set, tf.int32)
    factors = reduction["prescale_factor"], reduction["postscale_factor"]
    number = scatter_factor(reduction["op"], process_set, *factors, tf.cast(size, tf.float64))
    factor = tf.convert_to_tensor(number, tf.float64)
    scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
    gathered = grouped_allgather(scaled, process_set=process_set)
    is_global = process_set is global_process_set  # only its ranks change
    position = tf.reshape(rank_op() if is_global else process_set.rank() or 0, [1])
    here = allgather(position, process_set=process_set)
    return [
        _with_rows_of_joined(tensor, here, tf.shape(given), size)
        for tensor, given in zip(gathered, op.inputs, strict=True)
    ]


def _with_rows_of_joined(gathered: tf.Tensor, here: tf.Tensor, shape: tf.Tensor, size: Any) -> tf.Tensor:
    """Zeros where the rows of ranks would be that have joined: these have dropped their parts."""
    parts = shape[0] // size + tf.cast(tf.range(size) < shape[0] % size, tf.int32)
    present = tf.reduce_any(tf.equal(tf.range(size)[:, tf.newaxis], here[tf.newaxis]), axis=1)
    counts = tf.where(present, parts, tf.zeros_like(parts))
    return _placed(gathered, counts, _exclusive_cumsum(parts), shape)
