"""Callbacks for ``model.fit`` of ``tf.keras``, whether that is Keras 3 or, with TF_USE_LEGACY_KERAS=1,
tf_keras.

All ranks must give ``fit`` the same ones, in the same order. BroadcastGlobalVariablesCallback(0) comes first,
MetricAverageCallback before all callbacks that use metrics.
"""

from horovod.tensorflow.keras.backend import adapter as _adapter

BroadcastGlobalVariablesCallback = _adapter.BroadcastGlobalVariablesCallback
MetricAverageCallback = _adapter.MetricAverageCallback
ProgressCallback = _adapter.ProgressCallback
LearningRateScheduleCallback = _adapter.LearningRateScheduleCallback
LearningRateWarmupCallback = _adapter.LearningRateWarmupCallback
BestModelCheckpoint = _adapter.BestModelCheckpoint

LRScheduleCallback = LearningRateScheduleCallback
