"""Metrics of the whole job."""

from __future__ import annotations

from typing import Any

import numpy

from horovod.common.collective.byte_objects import mean_of_plain
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.mxnet.mpi_ops import allreduce
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import NDArray

__all__ = ["get_global_mean"]


def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of a value over all ranks. Not differentiable.

    Args:
        value: A number, or an array of numpy or MXNet of equal shape on all ranks.
        name: Of the operation, equal on all ranks.
        process_set: The ranks that take part.

    Returns:
        A float for a number, a numpy array for an array of numpy, an array of MXNet for one of MXNet, which
        alone does not wait. Integers have a mean in floating point.
    """
    if not isinstance(value, NDArray):
        return mean_of_plain(value, name, process_set)
    with mx.autograd.pause():
        floating = "float" in numpy.dtype(value.dtype).name
        wide = value if floating else value.astype("float32")
        return allreduce(wide, name=name, process_set=process_set, op=Average)
