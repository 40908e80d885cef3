"""Metrics of the whole job."""

from __future__ import annotations

import numbers
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.torch.operations import ops


def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of a value over all ranks. Not differentiable.

    Args:
        value: a number, an array of numpy or a tensor, of one shape on all ranks. Integers have a mean in
            floating point.
        name: identifies the operation on all ranks.
        process_set: the ranks that take part.

    Returns:
        A float for a number, a numpy array for an array, a tensor for a tensor.

    Raises:
        TensorMismatchError: the shapes or types differ; on all ranks.
        HorovodInternalError: a rank is gone.
    """
    if isinstance(value, torch.Tensor):
        exact = not (value.is_floating_point() or value.is_complex())
        wide = value.to(torch.get_default_dtype()) if exact else value
        return _mean(wide.detach(), name, process_set)
    if isinstance(value, numbers.Real):
        return _mean(torch.tensor(float(value), dtype=torch.float64, device="cpu"), name, process_set).item()
    import numpy  # late: only who has an array needs it

    array = numpy.asarray(value)
    if not numpy.issubdtype(array.dtype, numpy.inexact):
        array = array.astype(numpy.float64)
    return _mean(torch.from_numpy(numpy.array(array, order="C")), name, process_set).numpy()


def _mean(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    return ops.synchronize(ops.allreduce_async(tensor, None, name, Average, process_set=process_set))
