"""Aggregation of gradients where TensorFlow executes eagerly or traces a ``tf.function``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_aggregation import GradientAggregation
from horovod.tensorflow.gradient_reduction import Reducer


class LocalGradientAggregationHelperEager(GradientAggregation):
    """Aggregation in steps that run eagerly or are traced; its variables outlive the traces.

    ``allreduce_func``: a function of gradients and variables that returns the reduced gradients.
    ``average_aggregated_gradients``: divides the totals by ``backward_passes_per_step``. ``sparse_as_dense``
    is accepted and not needed. ValueError unless ``backward_passes_per_step`` is positive.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reducer,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.counter = self._variable("aggregation_counter", (), tf.int64)

    def _variable(self, name: str, shape: Any, dtype: tf.DType) -> tf.Variable:
        with tf.init_scope():
            return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)

    def _read(self, variable: tf.Variable) -> tf.Tensor:
        return variable.read_value()
