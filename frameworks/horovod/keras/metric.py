"""Metrics of the whole job."""

from __future__ import annotations

from typing import Any

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.keras.backend import backend

__all__ = ["get_global_mean"]


def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of a value over all ranks. Not differentiable.

    Args:
        value: A number, or a numpy array or tensor of equal shape on all ranks.
        name: Of the operation, equal on all ranks.
        process_set: The ranks that take part.

    Returns:
        A float for a number, a numpy array for an array, a tensor for a tensor. Integers have a mean in
        floating point.
    """
    return backend.hvd.metric.get_global_mean(value, name, process_set)
