"""The gradients that a variable may have: a dense one, and sparse ones with indices of either type. Ranks may
have different ones in one step; see ``common.training.present_gradients``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow.graph import tf_variable

_INDICES = (None, tf.int32, tf.int64)  # by kind; the first is dense


def slots_of(variables: int) -> int:
    """How many slots so many variables have."""
    return variables * len(_INDICES)


def slot_of(place: int, gradient: Any) -> int:
    """The slot of ``gradient``, of the variable at ``place``."""
    dtype = gradient.indices.dtype if isinstance(gradient, tf.IndexedSlices) else None
    return place * len(_INDICES) + _INDICES.index(dtype)


def place_of(slot: int) -> int:
    """The place of the slot's variable."""
    return slot // len(_INDICES)


def absent(slot: int, variable: Any) -> Any:
    """A gradient for a slot that this rank lacks, which changes no sum."""
    dtype, shape = tf.as_dtype(variable.dtype).base_dtype, tf.TensorShape(variable.shape)
    indices = _INDICES[slot % len(_INDICES)]
    if indices is None:
        return tf.zeros(shape, dtype) if shape.is_fully_defined() else tf.zeros_like(tf_variable(variable))
    values = tf.zeros([0, *shape[1:]], dtype)
    return tf.IndexedSlices(values, tf.zeros([0], indices), tf.constant(shape.as_list(), indices))


def by_variable(gradients: Mapping[int, Any], variables: int) -> list[Any]:
    """For each of so many variables its gradient, of those by slot; None: it has none."""
    found: list[list[Any]] = [[] for _ in range(variables)]
    for slot, gradient in gradients.items():
        found[place_of(slot)].append(gradient)
    return [_sum(parts) if parts else None for parts in found]


def _sum(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if not all(isinstance(part, tf.IndexedSlices) for part in parts):
        return tf.add_n([tf.convert_to_tensor(part) for part in parts])
    values = tf.concat([part.values for part in parts], 0)
    indices = tf.concat([tf.cast(part.indices, tf.int64) for part in parts], 0)
    return tf.IndexedSlices(values, indices, parts[0].dense_shape)
