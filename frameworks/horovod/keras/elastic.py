"""Training with the package ``keras``, on TensorFlow, torch or JAX, that goes on when workers are lost and
when workers come. See ``horovod.tensorflow.keras.elastic`` for an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.elastic import ModelState
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.decorator import run_with
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

    def restore(self) -> None:
        """See ``State``."""
        _backend.forget_passes(self.model)  # an evaluate that has failed would give it back in `sync`
        super().restore()

    def _settle(self) -> None:
        with _backend.internal_errors():
            _backend.give_back(self.model)  # within a fit on JAX, its variables are empty
            _backend.settle()

    def _broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        with _backend.internal_errors():
            _backend.broadcast_variables(variables, root_rank)


run = run_with(lambda: _backend.internal_errors())


__all__ = [
    "CheckpointError",
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
