"""Tensors of PyTorch and TensorFlow in the memory of the arrays that ranks read, where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrow import ALIGNMENT


def to_torch(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Tensors that share the memory of the arrays. Bytes and strings stay arrays."""
    import torch

    return {
        name: values if values.dtype == object else torch.from_numpy(values) for name, values in batch.items()
    }


def to_tensorflow(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Tensors, which share the memory of arrays that begin at a multiple of 64 bytes: do not change those."""
    import tensorflow as tf

    def tensor(values: np.ndarray) -> Any:
        if values.dtype == object or values.ctypes.data % ALIGNMENT:
            return tf.convert_to_tensor(values)
        return tf.experimental.dlpack.from_dlpack(values.__dlpack__())

    return {name: tensor(values) for name, values in batch.items()}
