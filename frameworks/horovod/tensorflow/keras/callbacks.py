"""Callbacks for ``model.fit`` of ``tf.keras``, whether that is Keras 3 or, with TF_USE_LEGACY_KERAS=1,
tf_keras.

All ranks must give ``fit`` the same ones, in the same order. BroadcastGlobalVariablesCallback(0) comes first,
MetricAverageCallback before all callbacks that use metrics.
"""

from __future__ import annotations

import tensorflow as tf

from horovod._keras import callbacks, rate_callbacks
from horovod.tensorflow.keras.backend import backend


class BroadcastGlobalVariablesCallback(callbacks.BroadcastGlobalVariables, tf.keras.callbacks.Callback):
    __doc__ = callbacks.BroadcastGlobalVariables.__doc__
    _backend = backend


class MetricAverageCallback(callbacks.MetricAverage, tf.keras.callbacks.Callback):
    __doc__ = callbacks.MetricAverage.__doc__
    _backend = backend


class LearningRateScheduleCallback(rate_callbacks.LearningRateSchedule, tf.keras.callbacks.Callback):
    __doc__ = rate_callbacks.LearningRateSchedule.__doc__
    _backend = backend


class LearningRateWarmupCallback(rate_callbacks.LearningRateWarmup, tf.keras.callbacks.Callback):
    __doc__ = rate_callbacks.LearningRateWarmup.__doc__
    _backend = backend


class BestModelCheckpoint(callbacks.BestModel, tf.keras.callbacks.ModelCheckpoint):
    __doc__ = callbacks.BestModel.__doc__
    _backend = backend

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath=callbacks.best_model_path(save_weights_only),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )


LRScheduleCallback = LearningRateScheduleCallback
