"""The framework by which Keras computes, found when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from horovod._keras.backend import Backend, GradientSettings
from horovod.common import basics
from horovod.common.process_sets import ProcessSet, global_process_set


def adapter() -> Any:
    """The module with what ``horovod.keras`` needs of the framework: ``backend``, ``distribute``, the
    collectives, ``Compression`` and ``metric``.

    ValueError when Keras computes by another framework than TensorFlow or torch.
    """
    name = keras.backend.backend()
    if name == "tensorflow":
        from horovod.keras import on_tensorflow

        return on_tensorflow
    if name == "torch":
        from horovod.keras import on_torch

        return on_torch
    raise ValueError(
        f"Keras computes by {name} here, and horovod.keras works with its backends tensorflow and torch; set "
        "KERAS_BACKEND to one of them before keras is imported."
    )


class LazyBackend:
    """See ``horovod._keras.backend.Backend``; every call goes to the framework's."""

    @property
    def name(self) -> str:
        """See ``Backend``."""
        return keras.backend.backend()

    def reduce_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Any], settings: GradientSettings
    ) -> list[Any]:
        """See ``Backend``."""
        return _chosen().reduce_gradients(gradients, variables, settings)

    def scale(self, gradient: Any, factor: float) -> Any:
        """See ``Backend``."""
        return _chosen().scale(gradient, factor)

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        _chosen().broadcast_variables(variables, root_rank, process_set)

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """See ``Backend``."""
        return _chosen().mean(values)

    rank = staticmethod(basics.rank)
    size = staticmethod(basics.size)


def _chosen() -> Backend:
    return adapter().backend


backend = LazyBackend()
