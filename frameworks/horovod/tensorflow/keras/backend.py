"""TensorFlow as the backend of the Keras parts, whichever Keras it is that runs on it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.adapter import KerasAdapter
from horovod._keras.backend import REMEDY, Backend, Plan
from horovod._keras.optimizer import is_keras_3, keras_of, package_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_reduction import GradientReducer
from horovod.tensorflow.keras import keras2_optimizer
from horovod.tensorflow.reductions import size_of
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization  # noqa: F401  # to Keras by name


class TensorFlowBackend(Backend):
    """See ``horovod._keras.backend.Backend``."""

    name = "tensorflow"
    hvd = hvd

    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """Of any Keras on TensorFlow."""
        keras = keras_of(optimizer)
        if _in_sessions() and (is_keras_3(keras) or not hasattr(optimizer, "get_slot_names")):
            raise ValueError(
                f"Without eager execution, this {type(optimizer).__name__} cannot be a DistributedOptimizer. "
                f"Use tf.keras.optimizers.legacy.{type(optimizer).__name__} of Keras 2 (install tf_keras and "
                "set TF_USE_LEGACY_KERAS=1), or drop disable_eager_execution()."
            )
        if not is_keras_3(keras):
            return keras2_optimizer.distribute(optimizer, plan, keras)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"Keras computes by {keras.backend.backend()} here: import horovod.keras instead, or set "
                "KERAS_BACKEND=tensorflow."
            )
        return keras3_optimizer.distribute(optimizer, plan, keras)

    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """See ``Backend``."""
        return _reducer(plan)(gradients, variables)

    def divided(self, gradient: Any, process_set: ProcessSet) -> Any:
        """See ``Backend``."""
        if isinstance(gradient, tf.IndexedSlices):
            values = self.divided(gradient.values, process_set)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / size_of(process_set, gradient.dtype)

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        assigned = hvd.broadcast_variables(variables, root_rank, process_set)
        if assigned is not None:
            self.result(assigned)

    def broadcast_global_variables(self, root_rank: int) -> None:
        """See ``Backend``."""
        self.result(hvd.broadcast_global_variables(root_rank))

    def tensor(self, value: Any) -> Any:
        """See ``Backend``."""
        return tf.convert_to_tensor(value)

    def internal_errors(self) -> contextlib.AbstractContextManager[None]:
        """See ``Backend``."""
        return hvd.elastic.internal_errors()

    def is_eager(self) -> bool:
        """See ``Backend``."""
        return tf.executing_eagerly()

    def is_in_sessions(self) -> bool:
        """See ``Backend``."""
        return _in_sessions()

    def result(self, tensor: Any) -> Any:
        """In a program of TensorFlow 1, what the operation gives when Keras' session runs it."""
        if not _in_sessions():
            return tensor
        return tf.compat.v1.keras.backend.get_session().run(tensor)


def _in_sessions() -> bool:
    """Whether this is a program of TensorFlow 1, whose graphs a session runs."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


@functools.lru_cache(maxsize=64)  # of the optimizers that still run; an evicted one makes its own anew
def _reducer(plan: Plan) -> GradientReducer:
    return GradientReducer(plan.name, plan.settings, plan.loss_is_scaled, REMEDY)


backend = TensorFlowBackend()
adapter = KerasAdapter(package_of(tf.keras.optimizers.SGD), backend, "horovod.tensorflow.keras")
