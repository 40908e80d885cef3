"""Callbacks for ``model.fit`` of the package ``keras``, on whichever backend it computes.

All ranks must give ``fit`` the same ones, in the same order. BroadcastGlobalVariablesCallback(0) comes first,
MetricAverageCallback before all callbacks that use metrics.
"""

from typing import Any as _Any

from horovod.keras.backend import adapter as _adapter

BroadcastGlobalVariablesCallback = _adapter.BroadcastGlobalVariablesCallback
MetricAverageCallback = _adapter.MetricAverageCallback
ProgressCallback = _adapter.ProgressCallback
LearningRateScheduleCallback = _adapter.LearningRateScheduleCallback
LearningRateWarmupCallback = _adapter.LearningRateWarmupCallback
_Checkpoint: _Any = _adapter.BestModelCheckpoint


class BestModelCheckpoint(_Checkpoint):
    __doc__ = _Checkpoint.__doc__

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(monitor, verbose, save_weights_only=False, mode=mode, save_freq=save_freq)


LRScheduleCallback = LearningRateScheduleCallback
