"""Metrics of the whole job."""

from __future__ import annotations

import numbers
from typing import Any

import numpy
import tensorflow as tf

from horovod.common import byte_objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.tracing import as_written


@as_written
def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of ``value`` over all ranks: a float for a number, a numpy array for an array, a tensor for a
    tensor or variable. Integers have a mean in floating point. Not differentiable.

    Shapes must be equal on all ranks; for arrays ValueError on every rank when they are not.
    """
    if tf.is_tensor(value):
        tensor = tf.convert_to_tensor(value)
        wide = tensor if tensor.dtype.is_floating else tf.cast(tensor, tf.float32)
        return mpi_ops._allreduce(tf.stop_gradient(wide), name=name, op=Average, process_set=process_set)
    array = numpy.asarray(value)
    # As an object, because there may be no session to run an operation in.
    gathered = byte_objects.objects.allgather_object(array, name, process_set)
    shapes = [each.shape for each in gathered]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"get_global_mean: the ranks gave arrays of different shapes, in rank order {shapes}"
        )
    mean = numpy.mean(gathered, axis=0, dtype=numpy.result_type(array.dtype, numpy.float32))
    mean = mean.astype(array.dtype) if numpy.issubdtype(array.dtype, numpy.floating) else mean
    return float(mean) if isinstance(value, numbers.Real) else mean
