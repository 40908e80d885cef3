"""Metrics of the whole job."""

from __future__ import annotations

from typing import Any

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.keras.backend import backend


def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of ``value`` over all ranks: a float for a number, a numpy array for an array, a tensor for a
    tensor. Integers have a mean in floating point. Not differentiable.
    """
    return backend.hvd.metric.get_global_mean(value, name, process_set)
