"""Training with ``tf.keras`` that goes on when workers are lost and when workers come::

import horovod.tensorflow.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0)
callbacks = [
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.CommitStateCallback(state),
]

@hvd.elastic.run
def train(state):
    model.fit(dataset, initial_epoch=state.epoch, epochs=epochs, callbacks=callbacks)

train(state)
"""

from __future__ import annotations

from typing import Any

from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale
from horovod.tensorflow.elastic import TensorFlowKerasState, indices_dataset, run
from horovod.tensorflow.keras.backend import adapter as _adapter

CommitStateCallback = _adapter.CommitStateCallback
LearningRateScaleCallback = _adapter.LearningRateScaleCallback
UpdateBatchStateCallback = _adapter.UpdateBatchStateCallback
UpdateEpochStateCallback = _adapter.UpdateEpochStateCallback


class KerasState(TensorFlowKerasState):
    """A model, its optimizer, and whatever else the training needs to go on.

    Args:
        model: built, so that it has weights.
        optimizer: by default that of the model, if it is compiled.
        **kwargs: further attributes, such as ``epoch=0, batch=0``.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


__all__ = [
    "CheckpointError",
    "CommitStateCallback",
    "ElasticBatches",
    "ElasticIndices",
    "indices_dataset",
    "KerasState",
    "LearningRateScaleCallback",
    "RateScale",
    "run",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
