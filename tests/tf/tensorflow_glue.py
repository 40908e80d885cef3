"""The cases of ``operations`` in TensorFlow: one after the other eagerly, or many in one ``tf.function``."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from framework import Framework
from operations import Running
from reference import DTYPES, FLOAT8

import horovod.tensorflow as hvd

TYPES = [name for name in DTYPES if name not in FLOAT8]
"""Those that the adapter takes."""


def tensor(array: np.ndarray, dtype: str) -> tf.Tensor:
    """The array as a tensor of the named type."""
    return tf.cast(tf.constant(array), dtype)


def array(result: tf.Tensor) -> np.ndarray:
    """A tensor as numpy shows it; bfloat16 as float32."""
    return (tf.cast(result, tf.float32) if result.dtype == tf.bfloat16 else result).numpy()


class TensorFlowRunning(Running):
    """Waits when it runs eagerly; nothing is in place."""

    def tensor(self, array: np.ndarray, dtype: str) -> tf.Tensor:
        return tensor(array, dtype)

    def array(self, tensor: tf.Tensor) -> np.ndarray:
        return array(tensor)

    def dtype(self, tensor: tf.Tensor) -> str:
        return tensor.dtype.name

    def call(self, tensors: Any, options: dict[str, Any]) -> Any:
        if "splits" in options and self.case.number % 3:
            kind = tf.int32 if self.case.number % 3 == 1 else tf.int64
            options["splits"] = tf.constant(options["splits"], kind)
        if self.case.kind == "grouped_reducescatter":
            del options["name"]  # it takes none
        return getattr(hvd, self.case.kind)(tensors, **options)

    def scope(self) -> str:
        """In a graph the name comes from the node."""
        return f"set{self.case.process_set.process_set_id}/case{self.case.number}"


def run_in_graph(window: list[TensorFlowRunning], order: random.Random) -> None:
    """All as one ``tf.function``, traced in an order of this rank; each is then complete."""
    places = list(range(len(window)))
    order.shuffle(places)

    @tf.function(autograph=False)
    def matrix(inputs: list[list[tf.Tensor]]) -> list[Any]:
        results: list[Any] = [None] * len(window)
        for place in places:
            running = window[place]
            running.case.name = f"named{running.case.number}" if running.case.name else None
            with tf.name_scope(running.scope()):
                results[place] = running.called_with(inputs[place])
        return results

    for running, result in zip(window, matrix([running.mine for running in window]), strict=True):
        running.called = result


class TensorFlow(Framework):
    """What the shared tests need, eagerly."""

    hvd = hvd
    running = TensorFlowRunning
    dtypes = TYPES
    disagreement = tf.errors.FailedPreconditionError
    gone = tf.errors.UnknownError
    mistake = (ValueError, TypeError, tf.errors.InvalidArgumentError)

    def tensor(self, array: np.ndarray) -> tf.Tensor:
        return tf.constant(array)

    def array(self, tensor: tf.Tensor) -> np.ndarray:
        return array(tensor)

    def concatenated(self, tensors: list[tf.Tensor]) -> tf.Tensor:
        return tf.concat(tensors, 0)

    def gradient(
        self, call: Callable[[tf.Tensor], tf.Tensor], weights: np.ndarray, array: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        given = tf.constant(array)
        with tf.GradientTape() as tape:
            tape.watch(given)
            result = call(given)
            loss = tf.reduce_sum(result * tf.constant(weights))
        return result.numpy(), tape.gradient(loss, given).numpy()


framework = TensorFlow()
