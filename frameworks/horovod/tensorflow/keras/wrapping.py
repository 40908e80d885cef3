"""Optimizers and models of any Keras on TensorFlow, made distributed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.plan import Plan
from horovod._keras.versions import is_keras_3, keras_of
from horovod.tensorflow.keras import keras2_optimizer


def distribute(optimizer: Any, plan: Plan) -> Any:
    """A distributed copy of ``optimizer``. ValueError when it is not of a Keras that computes by
    TensorFlow.
    """
    keras = keras_of(optimizer)
    if not is_keras_3(keras):
        return keras2_optimizer.distribute(optimizer, plan, keras)
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"Keras computes by {keras.backend.backend()} here: import horovod.keras instead, or set "
            "KERAS_BACKEND=tensorflow."
        )
    return keras3_optimizer.distribute(optimizer, plan, keras)


def the_keras() -> Any:
    """The package that ``tf.keras`` stands for."""
    return keras_of(tf.keras.optimizers.SGD())
