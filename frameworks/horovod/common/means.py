"""Means over the ranks of what is no tensor of a framework."""

from __future__ import annotations

import numbers
from typing import Any

from horovod.common import byte_objects
from horovod.common.process_sets import ProcessSet, global_process_set


def mean_of_plain(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of ``value`` over all ranks: a float for a number, an array for an array of numpy or for what
    numpy makes one of. Integers have a mean in floating point. Waits for the other ranks.

    ValueError on every rank when the shapes differ.
    """
    import numpy  # late: nothing else here needs it

    array = numpy.asarray(value)
    gathered = byte_objects.objects.allgather_object(array, name, process_set)
    shapes = [each.shape for each in gathered]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"get_global_mean: the ranks gave arrays of different shapes, in rank order {shapes}"
        )
    mean = numpy.mean(gathered, axis=0, dtype=numpy.result_type(array.dtype, numpy.float32))
    mean = mean.astype(array.dtype) if numpy.issubdtype(array.dtype, numpy.floating) else mean
    return float(mean) if isinstance(value, numbers.Real) else mean
