"""What JAX's arrays are to the core, outside of compiled functions: addresses, types, shapes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.collective.tensor_glue import DTYPES, Output, Placement, Purpose, Result, Spec, TensorGlue
from horovod.jax import internals

_NUMBERS = {
    np.dtype(getattr(jnp, name if name != "bool" else "bool_")): number
    for name, number in DTYPES.items()
    if hasattr(jnp, name)
}
_TYPES = {number: dtype for dtype, number in _NUMBERS.items()}
_INT32_MAX = np.iinfo(np.int32).max


def dtype_number(tensor: Any) -> int:
    """The number of an array's type; ValueError for one that the core does not have."""
    if not is_supported(tensor.dtype):
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return _NUMBERS[tensor.dtype]


def is_supported(dtype: Any) -> bool:
    """Whether the core has the type."""
    return dtype in _NUMBERS  # as it is: numpy has no such type for a key of random numbers


def as_array(tensor: Any) -> jax.Array:
    """What is given, as an array of JAX; without a compiled function for each shape, as jnp.asarray has."""
    if isinstance(tensor, jax.Array):
        return tensor
    array = np.asarray(tensor)
    if isinstance(tensor, int):  # OverflowError where it has more bits than JAX has
        array = np.asarray(tensor, jax.dtypes.canonicalize_dtype(array.dtype))
    return jax.device_put(array)


def place(tensor: Any, result: Result, purpose: Purpose) -> Placement[jax.Array]:
    """See TensorGlue. Waits for the array, and for the compiled functions that were called before: their
    operations come first on every rank.
    """
    array = as_array(tensor)
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            "Inside a function that JAX traces, use the form of the operation without _async: XLA itself "
            "goes on with the rest of the program meanwhile."
        )
    number = dtype_number(array)
    internals.wait_for_programs()
    source = np.ascontiguousarray(np.asarray(array)).reshape(array.shape)
    target = None if result is Result.FROM_CORE else np.empty(source.shape, source.dtype)

    def finish(output: Output | None) -> jax.Array:
        return jax.device_put(_adopt(output) if target is None else target, _home(array))

    to, room = (0, 0) if target is None else (target.ctypes.data, target.nbytes)
    spec = (source.ctypes.data, to, number, source.shape, source.nbytes, room)
    return Placement(spec, (source, target), finish)


def _adopt(output: Output | None) -> np.ndarray[Any, Any]:
    assert output is not None  # the core allocates in an operation that adopts
    return np.frombuffer(output.tobytes(), _TYPES[output.dtype]).reshape(output.shape)


def _home(array: jax.Array) -> Any:
    """Where the result goes: where the program has put the array, if it has."""
    return array.sharding if getattr(array, "committed", False) else None


class JaxGlue(TensorGlue[jax.Array]):
    """Places and makes arrays. None is described in place: they never change."""

    place = staticmethod(place)

    def describe(self, tensor: jax.Array) -> Spec | None:
        return None

    def device(self, tensor: jax.Array) -> object:
        return None  # all pass through host memory

    def rows(self, tensor: jax.Array, start: int, count: int) -> jax.Array:
        return tensor[start : start + count]

    def row_count(self, tensor: jax.Array) -> int:
        return tensor.shape[0] if tensor.ndim > 0 else 0

    def placed(self, tensor: jax.Array, counts: Sequence[int], starts: Sequence[int], rows: int) -> jax.Array:
        placed = jnp.zeros((rows, *tensor.shape[1:]), tensor.dtype)
        at = 0
        for count, start in zip(counts, starts, strict=True):
            placed = placed.at[start : start + count].set(tensor[at : at + count])
            at += count
        return placed

    def scaled(self, tensor: jax.Array, factor: float) -> jax.Array:
        if jnp.issubdtype(tensor.dtype, jnp.floating):
            return tensor * jnp.asarray(factor, tensor.dtype)
        return (tensor.astype(float) * factor).astype(tensor.dtype)

    def zeroed(self, tensor: jax.Array) -> jax.Array:
        return jnp.where(False, tensor, jnp.zeros_like(tensor))

    def equals(self, tensor: jax.Array, other: jax.Array | float) -> jax.Array:
        return (tensor == other).astype(tensor.dtype)

    def integers(self, values: Any) -> list[int]:
        try:
            return [operator.index(value) for value in np.asarray(values).tolist()]
        except TypeError:
            raise ValueError(
                f"Expected a one-dimensional array or a list of integers, not {type(values).__name__}."
            ) from None

    def integer_tensor(self, values: Sequence[int], like: Any) -> jax.Array:
        large = any(value > _INT32_MAX for value in values)
        return jax.device_put(np.asarray(values, np.int64 if large else np.int32))

    def from_bytes(self, data: bytes) -> jax.Array:
        return jax.device_put(np.frombuffer(data, np.uint8))

    def to_bytes(self, tensor: jax.Array) -> bytes:
        return np.asarray(tensor).tobytes()

    def records_gradient(self, tensor: jax.Array) -> bool:
        """Whether JAX traces: then it is a part of a program, compiled or to be differentiated."""
        return isinstance(tensor, jax.core.Tracer) or internals.is_tracing()
