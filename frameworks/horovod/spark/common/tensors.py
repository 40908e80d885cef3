"""Tensors of PyTorch and TensorFlow in the memory of the arrays that ranks read, where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_torch(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Tensors that share the memory of the arrays. Bytes and strings stay arrays."""
    import torch

    return {
        name: values if values.dtype == object else torch.from_numpy(values) for name, values in batch.items()
    }


def to_tensorflow(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Tensors, which share the memory of arrays that begin at a multiple of 64 bytes. Do not change those."""
    import tensorflow as tf

    return {name: tf.convert_to_tensor(values) for name, values in batch.items()}
