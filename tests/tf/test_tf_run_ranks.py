"""What the other tests stand on: a rank that is forked after TensorFlow was imported computes."""

import os
import sys

import pytest


def rank_computes() -> list[object]:
    """Eagerly, in a graph and with Keras; and says what was loaded."""
    import tensorflow as tf

    @tf.function
    def square(matrix: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matmul(matrix, matrix)

    assert square(tf.ones((8, 8))).numpy().sum() == 8**3
    assert (tf.range(3) * 2).numpy().tolist() == [0, 2, 4]
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    assert model(tf.ones((2, 3))).shape == (2, 1)
    threads = [len(os.listdir("/proc/self/task")) < 40, "torch" in sys.modules]
    return [os.environ["HOROVOD_RANK"], type(model).__module__.split(".")[0], *threads]


def test_a_forked_rank_computes(run_ranks) -> None:
    assert run_ranks(2, rank_computes) == [[str(rank), "keras", True, False] for rank in range(2)]


def test_with_the_old_keras(run_legacy_keras_ranks) -> None:
    assert run_legacy_keras_ranks(2, rank_computes) == [
        [str(rank), "tf_keras", True, False] for rank in range(2)
    ]


def rank_trains_on_torch() -> list[object]:
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((8, 3)), np.ones((8, 1)), epochs=2, verbose=0)
    return [keras.backend.backend(), len(history.history["loss"]), "tensorflow" in sys.modules]


def test_keras_on_torch(run_torch_keras_ranks) -> None:
    pytest.importorskip("keras", reason="horovod.keras is for the package keras")
    assert run_torch_keras_ranks(2, rank_trains_on_torch) == [["torch", 2, False]] * 2
