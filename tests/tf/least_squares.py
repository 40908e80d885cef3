"""A small model with dense and sparse gradients, and the same in numpy.

The loss of a rank is half the sum of the squares of ``table[tokens] + inputs @ weight + bias - targets``.
"""

from typing import Any

import numpy as np
import tensorflow as tf

ROWS, INPUTS, OUTPUTS, TOKENS = 6, 4, 3, 5


def batch(rank: int, step: int = 0) -> tuple[Any, Any, Any]:
    """Tokens, inputs and targets, of another number of rows on every rank."""
    random = np.random.default_rng([rank, step])
    rows = ROWS + rank
    tokens = random.integers(0, TOKENS, rows)
    return tokens, random.normal(size=(rows, INPUTS)), random.normal(size=(rows, OUTPUTS))


def initial() -> list[Any]:
    """Weight, bias and table, as arrays."""
    random = np.random.default_rng(7)
    return [random.normal(size=shape) for shape in ((INPUTS, OUTPUTS), (OUTPUTS,), (TOKENS, OUTPUTS))]


def numpy_gradients(parameters: list[Any], rank: int, step: int = 0) -> list[Any]:
    """Those of weight, bias and table."""
    weight, bias, table = parameters
    tokens, inputs, targets = batch(rank, step)
    residual = table[tokens] + inputs @ weight + bias - targets
    of_table = np.zeros_like(table)
    np.add.at(of_table, tokens, residual)
    return [inputs.T @ residual, residual.sum(0), of_table]


def numpy_average(parameters: list[Any], ranks: list[int], step: int = 0) -> list[Any]:
    """The average of the ranks' gradients."""
    return [
        np.mean(parts, axis=0)
        for parts in zip(*(numpy_gradients(parameters, rank, step) for rank in ranks), strict=True)
    ]


def variables() -> list[tf.Variable]:
    """Weight, bias and table, of float32."""
    return [
        tf.Variable(tf.constant(value, tf.float32), name=name)
        for value, name in zip(initial(), ("weight", "bias", "table"), strict=True)
    ]


def tensors(rank: int, step: int = 0) -> tuple[Any, Any, Any]:
    """The batch, as tensors."""
    tokens, inputs, targets = batch(rank, step)
    return tf.constant(tokens), tf.constant(inputs, tf.float32), tf.constant(targets, tf.float32)


def loss_of(parameters: list[Any], data: tuple[Any, Any, Any]) -> Any:
    """The loss; the gradient of the table is sparse."""
    weight, bias, table = parameters
    tokens, inputs, targets = data
    residual = tf.gather(table, tokens) + inputs @ weight + bias - targets
    return tf.reduce_sum(residual**2) / 2


def close(found: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    """Gradients, sparse ones among them, against arrays."""
    for one, other in zip(found, expected, strict=True):
        value = one if isinstance(one, np.ndarray) else tf.convert_to_tensor(one).numpy()
        np.testing.assert_allclose(value, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
