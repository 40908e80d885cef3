"""Metrics of the whole job."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.collective.byte_objects import mean_of_plain
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.graph import as_written

__all__ = ["get_global_mean"]


@as_written
def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of a value over all ranks. Not differentiable.

    Args:
        value: A number, or a numpy array, tensor or variable of equal shape on all ranks.
        name: Of the operation, equal on all ranks.
        process_set: The ranks that take part.

    Returns:
        A float for a number, a numpy array for an array, a tensor for a tensor or variable. Integers have a
        mean in floating point.

    Raises:
        ValueError: On every rank, for arrays whose shapes differ.
    """
    if tf.is_tensor(value):
        tensor = tf.convert_to_tensor(value)
        exact = tensor.dtype.is_integer or tensor.dtype.is_bool
        wide = tf.cast(tensor, tf.float32) if exact else tensor
        return mpi_ops._allreduce(tf.stop_gradient(wide), name=name, op=Average, process_set=process_set)
    # Not by an operation: there may be no session to run one in.
    return mean_of_plain(value, name, process_set)
