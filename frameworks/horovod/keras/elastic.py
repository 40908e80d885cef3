"""Training with the package ``keras``, on TensorFlow or torch, that goes on when workers are lost and when
workers come. See ``horovod.tensorflow.keras.elastic`` for an example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._keras.elastic import ModelState
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.decorator import elastic
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale
from horovod.keras.backend import adapter as _adapter
from horovod.keras.backend import backend as _backend

CommitStateCallback = _adapter.CommitStateCallback
LearningRateScaleCallback = _adapter.LearningRateScaleCallback
UpdateBatchStateCallback = _adapter.UpdateBatchStateCallback
UpdateEpochStateCallback = _adapter.UpdateEpochStateCallback


class KerasState(ModelState):
    """A model, its optimizer, and whatever else the training needs to go on.

    Args:
        model: built, so that it has weights.
        optimizer: by default that of the model, if it is compiled.
        **kwargs: further attributes, such as ``epoch=0, batch=0``.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(_broadcast, model, optimizer, **kwargs)

    def _settle(self) -> None:
        _backend.settle()


def _broadcast(variables: Any, root_rank: int) -> None:
    with _backend.internal_errors():
        _backend.broadcast_variables(variables, root_rank)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: ``func(state, ...)`` runs again, from the last commit, when ranks are lost, and from where
    it is when hosts have changed.

    Args:
        func: the training; its first argument is the state.

    Returns:
        The function to call.
    """
    return elastic(func, _backend.internal_errors)


__all__ = [
    "CommitStateCallback",
    "ElasticBatches",
    "ElasticIndices",
    "KerasState",
    "LearningRateScaleCallback",
    "RateScale",
    "run",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
