"""Callbacks for ``model.fit`` of the package ``keras``, on whichever backend it computes.

All ranks must give ``fit`` the same ones, in the same order. BroadcastGlobalVariablesCallback(0) comes first,
MetricAverageCallback before all callbacks that use metrics.
"""

from __future__ import annotations

import keras

from horovod._keras import callbacks, rate_callbacks
from horovod.keras.backend import backend


class BroadcastGlobalVariablesCallback(callbacks.BroadcastGlobalVariables, keras.callbacks.Callback):
    __doc__ = callbacks.BroadcastGlobalVariables.__doc__
    _backend = backend


class MetricAverageCallback(callbacks.MetricAverage, keras.callbacks.Callback):
    __doc__ = callbacks.MetricAverage.__doc__
    _backend = backend


class LearningRateScheduleCallback(rate_callbacks.LearningRateSchedule, keras.callbacks.Callback):
    __doc__ = rate_callbacks.LearningRateSchedule.__doc__
    _backend = backend


class LearningRateWarmupCallback(rate_callbacks.LearningRateWarmup, keras.callbacks.Callback):
    __doc__ = rate_callbacks.LearningRateWarmup.__doc__
    _backend = backend


class BestModelCheckpoint(callbacks.BestModel, keras.callbacks.ModelCheckpoint):
    __doc__ = callbacks.BestModel.__doc__
    _backend = backend

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath=callbacks.best_model_path(save_weights_only=False),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )


LRScheduleCallback = LearningRateScheduleCallback
