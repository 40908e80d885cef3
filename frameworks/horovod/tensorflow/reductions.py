"""Allreduce and reducescatter in their public forms: with compression, and for ``tf.IndexedSlices``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.collective.compression import Compressor, Packed, resolve_plain_compression
from horovod.common.collective.gathers import scatter_op
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Average, Sum, resolve_op
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.graph import as_written, is_compiled_by_xla

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]

_KIND = "TensorFlow tensors"


@as_written
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks. Differentiable.

    ``tf.IndexedSlices`` are gathered, uncompressed: the result holds the slices of all ranks, an index as
    often as ranks gave it.

    Args:
        tensor: A tensor of equal shape and type on all ranks, or ``tf.IndexedSlices``.
        average: The deprecated form of ``op``.
        device_dense: Where the operation is placed for a dense tensor; empty: where TensorFlow puts it.
        device_sparse: Where it is placed for ``tf.IndexedSlices``.
        compression: How the tensor travels.
        op: Average (default), Sum, Min, Max, Product or, for floating-point tensors, Adasum.
        prescale_factor: Each element is multiplied by it before the reduction; equal on all ranks.
        postscale_factor: Each element is multiplied by it afterwards; equal on all ranks.
        name: Identifies the operation on all ranks.
        process_set: The ranks that take part.
        ignore_name_scope: The name is used as it is, without the name scope around the call.

    Returns:
        A new tensor of the shape and type of ``tensor``.

    Raises:
        NotImplementedError: For ``tf.IndexedSlices`` with factors or another reduction than Average and Sum.
    """
    op = resolve_op(op, average)
    compressor = resolve_plain_compression(compression, _KIND)
    if isinstance(tensor, tf.IndexedSlices):
        _check_slices(op, prescale_factor, postscale_factor)
        with on_device(device_sparse):
            return _reduce_slices([tensor], op, name, process_set, ignore_name_scope)[0]
    with on_device(device_dense):
        sent, context = compressor.compress(tf.convert_to_tensor(tensor))
        factors = (prescale_factor, postscale_factor)
        reduced = mpi_ops._allreduce(sent, name, op, *factors, ignore_name_scope, process_set)
        return compressor.decompress(reduced, context)


@as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduces tensors as one operation, all or none; those that are ``tf.IndexedSlices`` as another one. All
    other arguments are those of ``allreduce``.

    Args:
        tensors: The tensors.

    Returns:
        New tensors; an empty list as it is.

    Raises:
        NotImplementedError: As ``allreduce``.
    """
    op = resolve_op(op, average)
    compressor = resolve_plain_compression(compression, _KIND)
    if not tensors:
        return tensors  # type: ignore[return-value]
    results = list(tensors)
    sparse = [index for index, tensor in enumerate(results) if isinstance(tensor, tf.IndexedSlices)]
    dense = sorted(set(range(len(results))) - set(sparse))
    if sparse:
        _check_slices(op, prescale_factor, postscale_factor)
        slices_name = name + ".sparse" if name is not None and dense else name
        with on_device(device_sparse):
            slices = [results[index] for index in sparse]
            gathered = _reduce_slices(slices, op, slices_name, process_set, ignore_name_scope)
        _put(results, sparse, gathered)
    if dense:
        with on_device(device_dense):
            packed = Packed(compressor, (tf.convert_to_tensor(results[index]) for index in dense))
            factors = (prescale_factor, postscale_factor)
            reduced = mpi_ops._grouped_allreduce(
                packed.tensors, name, op, *factors, ignore_name_scope, process_set
            )
            _put(results, dense, packed.unpacked(reduced))
    return results


@as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] | None = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces a tensor over all ranks and deals out its rows: as many for each rank, one more for the first
    ones when the number of rows is not divisible. Differentiable. All other arguments are those of
    ``allreduce``.

    Args:
        tensor: Of equal shape and type on all ranks; it has a first dimension.
        op: Average or Sum.

    Returns:
        This rank's rows of the reduction.

    Raises:
        NotImplementedError: For ``tf.IndexedSlices``.
    """
    _refuse_slices([tensor])
    op = scatter_op(op)
    compressor = resolve_plain_compression(compression, _KIND)
    with on_device(device_dense):
        sent, context = compressor.compress(tf.convert_to_tensor(tensor))
        factors = (prescale_factor, postscale_factor)
        reduced = mpi_ops._reducescatter(sent, name, op, ignore_name_scope, process_set, *factors)
        return compressor.decompress(reduced, context)


@as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] | None = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """A ``reducescatter`` of each of several tensors as one operation, all or none. All other arguments are
    those of ``reducescatter``.

    Args:
        tensors: The tensors.

    Returns:
        This rank's rows of each; an empty list as it is.

    Raises:
        NotImplementedError: For ``tf.IndexedSlices``.
    """
    _refuse_slices(tensors)
    op = scatter_op(op)
    compressor = resolve_plain_compression(compression, _KIND)
    if not tensors:
        return tensors  # type: ignore[return-value]
    with on_device(device_dense):
        packed = Packed(compressor, map(tf.convert_to_tensor, tensors))
        factors = (prescale_factor, postscale_factor)
        reduced = mpi_ops._grouped_reducescatter(packed.tensors, None, op, False, process_set, *factors)
        return packed.unpacked(reduced)


def on_device(device: str) -> Any:
    """Places operations on ``device``; nothing for the empty string."""
    return tf.device(device) if device else contextlib.nullcontext()


def size_of(process_set: ProcessSet, dtype: tf.DType) -> Any:
    """How many ranks the set has, for use in a graph: asked for at each run where ranks may come and go, but
    in what XLA compiles.
    """
    number = check_process_set(process_set)
    if os.environ.get("HOROVOD_ELASTIC") == "1" and not is_compiled_by_xla():
        return tf.cast(mpi_ops.size_op(number), dtype)
    return tf.constant(process_set.size(), dtype)


def _put(results: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        results[place] = value


def _check_slices(op: int, prescale: float, postscale: float) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"An allreduce of tf.IndexedSlices supports Average and Sum, not {OP_NAMES[op]}; "
            "make it dense by tf.convert_to_tensor, or give sparse_as_dense=True"
        )
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError(
            "An allreduce of tf.IndexedSlices does not support prescale_factor and postscale_factor; "
            "make it dense by tf.convert_to_tensor, or give sparse_as_dense=True"
        )


def _refuse_slices(tensors: Sequence[Any]) -> None:
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise NotImplementedError(
            "A reducescatter of tf.IndexedSlices is not supported; make it dense by tf.convert_to_tensor"
        )


def _reduce_slices(
    slices: Sequence[tf.IndexedSlices], op: int, name: str | None, process_set: ProcessSet, as_named: bool
) -> list[tf.IndexedSlices]:
    """Gathers values and indices of all ranks, as one operation."""
    parts = [part for each in slices for part in (each.values, each.indices)]
    gathered = mpi_ops.grouped_allgather(
        parts, name=name, ignore_name_scope=as_named, process_set=process_set
    )
    totals = [
        tf.IndexedSlices(values, indices, each.dense_shape)
        for each, values, indices in zip(slices, gathered[::2], gathered[1::2], strict=True)
    ]
    return totals if op == Sum else [_averaged(total, process_set) for total in totals]


def _averaged(total: tf.IndexedSlices, process_set: ProcessSet) -> tf.IndexedSlices:
    size = size_of(process_set, total.values.dtype)
    if not total.values.dtype.is_integer:
        return tf.IndexedSlices(total.values / size, total.indices, total.dense_shape)
    # The total of an index is divided, truncating toward zero, as that of a dense tensor's element is.
    indices, position = tf.unique(total.indices)
    values = tf.math.unsorted_segment_sum(total.values, position, tf.size(indices))
    return tf.IndexedSlices(tf.truncatediv(values, size), indices, total.dense_shape)
