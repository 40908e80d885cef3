"""Arrays of numpy from those of Arrow, without a copy where their memory is the same."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

VECTOR_FIELDS = ["type", "size", "indices", "values"]  # of pyspark.ml's vectors, as Spark stores them
_DENSE = 1  # in "type"

Batch = dict[str, np.ndarray]
"""Rows, by the names of columns."""


def rows_of(batch: Batch) -> int:
    """How many rows a batch has."""
    return len(next(iter(batch.values())))


ALIGNMENT = 64  # bytes, of tensors of TensorFlow


@dataclass(frozen=True)
class Column:
    """A column of training data."""

    name: str
    dtype: str
    """Numpy's name of the type of an element; "object" for bytes and strings."""
    shape: tuple[int, ...]
    """Of one row: () for a scalar, (n,) for a vector or an array."""
    kind: str
    """What it is in a DataFrame: scalar, array, dense_vector, sparse_vector, mixed_vector or binary."""

    @property
    def bytes_of_row(self) -> int:
        """Of its numbers; 0 for bytes and strings."""
        return 0 if self.dtype == "object" else np.dtype(self.dtype).itemsize * prod(self.shape)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array as ``np.empty`` makes it, but in memory that TensorFlow takes as it is."""
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = prod(shape) * dtype.itemsize
    memory: np.ndarray = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_vector(kind: Any) -> bool:
    """Whether values of this type of Arrow are vectors of pyspark.ml."""
    return pa.types.is_struct(kind) and [kind.field(i).name for i in range(kind.num_fields)] == VECTOR_FIELDS


def is_list(kind: Any) -> bool:
    """Whether values of this type of Arrow are arrays."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def element_type(kind: Any, name: str) -> str:
    """Numpy's name for a type of Arrow.

    Raises:
        TypeError: values of this type are none to train with.
    """
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()))
    if types.is_decimal(kind):
        return "float64"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "object"
    if types.is_string(kind) or types.is_large_string(kind):
        return "object"
    raise TypeError(
        f"column {name!r} has values of the type {kind}. To train with it, make it a number, a vector, an "
        "array of numbers, bytes or a string"
        + (": flatten(column) makes one array of arrays" if is_list(kind) else "")
    )


def to_numpy(array: Any, column: Column) -> np.ndarray:
    """The values of an Arrow array.

    Args:
        array: a ``pyarrow.Array`` with what the column describes, or a vector or array of as many numbers.

    Returns:
        (rows, *column.shape) of ``column.dtype``, in the memory of the array if that is laid out so.

    Raises:
        ValueError: there is a null, or a row of another length.
        TypeError: there are single numbers in place of vectors or arrays, or the opposite.
    """
    if array.null_count:
        raise ValueError(
            f"column {column.name!r} has {array.null_count} nulls in {len(array)} rows. Fill or drop them: "
            "df.na.fill, df.na.drop"
        )
    if (is_vector(array.type) or is_list(array.type)) != bool(column.shape):
        wanted = f"{column.kind} of {column.shape[0]} numbers" if column.shape else column.kind
        raise TypeError(
            f"column {column.name!r} has values of the type {array.type}, and is to be a {wanted}"
        )
    if is_vector(array.type):
        values = _vectors(array, column)
    elif column.shape:
        values = _lists(array, column)
    else:
        values = _elements(array, column)
    return values.astype(column.dtype, copy=False)


def _elements(array: Any, column: Column) -> np.ndarray:
    if array.null_count:
        raise ValueError(f"arrays of column {column.name!r} have {array.null_count} nulls in them")
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        # to_numpy() would say that the memory is not writable, of which torch warns. It is our own.
        buffer = array.buffers()[1]
        return np.frombuffer(buffer, kind.to_pandas_dtype(), len(array), array.offset * kind.bit_width // 8)
    return array.to_numpy(zero_copy_only=False)


def _lists(array: Any, column: Column) -> np.ndarray:
    (length,) = column.shape
    if not pa.types.is_fixed_size_list(array.type):
        _check_lengths(array.value_lengths().to_numpy(), length, column)
    elif array.type.list_size != length:
        _check_lengths(np.array([array.type.list_size]), length, column)
    return _elements(array.flatten(), column).reshape(len(array), length)


def _vectors(array: Any, column: Column) -> np.ndarray:
    """Vectors that all are dense have the memory of their values; others are made dense."""
    (length,) = column.shape
    kinds, sizes, indices, values = (array.field(name) for name in VECTOR_FIELDS)
    is_dense = kinds.to_numpy() == _DENSE
    counts = values.value_lengths().to_numpy()
    _check_lengths(counts[is_dense], length, column)
    if is_dense.all():
        return _elements(values.flatten(), column).reshape(len(array), length)
    _check_lengths(sizes.filter(pa.array(~is_dense)).to_numpy(), length, column)
    starts = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) - np.repeat(starts, counts)  # of each value in its row
    places[np.repeat(~is_dense, counts)] = _elements(indices.flatten(), column)
    dense: np.ndarray = np.zeros((len(array), length), column.dtype)
    dense[np.repeat(np.arange(len(array)), counts), places] = _elements(values.flatten(), column)
    return dense


def _check_lengths(lengths: np.ndarray, length: int, column: Column) -> None:
    wrong = lengths[lengths != length]
    if wrong.size:
        raise ValueError(
            f"column {column.name!r} has rows of {length} and of {wrong[0]} values. All have to be of one "
            "length: pad or cut them"
        )
