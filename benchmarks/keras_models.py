"""The models that keras_train.py fits, with random data, for keras and tf_keras alike."""

from typing import Any

import numpy as np


def mlp(keras: Any) -> Any:
    """16 layers of width 512, 4.2 million parameters and little work: communication decides."""
    layers = [keras.layers.Input((512,))]
    layers += [keras.layers.Dense(512, activation="relu") for _ in range(16)]
    return keras.Sequential([*layers, keras.layers.Dense(10)])


def cnn(keras: Any) -> Any:
    """Four convolutions with batch normalization on 32x32 images, 0.4 million parameters."""
    layers = [keras.layers.Input((32, 32, 3))]
    for width in (32, 64, 128, 256):
        layers += [
            keras.layers.Conv2D(width, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
        ]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(10)])


MODELS = {"mlp": (mlp, (512,), 32), "cnn": (cnn, (32, 32, 3), 32)}
"""How to make it, the shape of a sample, and the batch of one rank."""


def data(name: str, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Inputs and labels for so many steps, and the batch size."""
    _, shape, batch = MODELS[name]
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((steps * batch, *shape), dtype=np.float32)
    return inputs, random.integers(0, 10, steps * batch), batch
