"""Predictions for the rows of a DataFrame: Arrow batches in, the same with further columns out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as T

from .arrow import Column, to_numpy

Predict = Callable[[list[np.ndarray]], Sequence[np.ndarray]]
"""Takes the features of some rows, each of shape (rows, ...), and returns the outputs, likewise."""

_VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
_ROWS, _BYTES = 4096, 16 << 20  # that a model takes at a time, at most


@dataclass(frozen=True)
class Output:
    """A column that is added. ``label``: what it was trained to be; ``shape``: of the model's output for one
    row.
    """

    name: str
    label: Column
    shape: tuple[int, ...]

    def spark_type(self) -> Any:
        """Of the column: that of the label, or a vector where the model gives several numbers for one."""
        if self.kind == "vector":
            return VectorUDT()
        element = _SPARK_TYPES[self.dtype]()
        return element if self.kind == "scalar" else T.ArrayType(element)

    @property
    def kind(self) -> str:
        """Of the column: scalar, array or vector."""
        if not self.label.shape:
            return "scalar" if math.prod(self.shape) == 1 else "vector"
        return "array" if self.label.kind == "array" else "vector"

    @property
    def dtype(self) -> str:
        """Of its numbers; transformation_fn may have made some of labels that are none."""
        return self.label.dtype if self.label.dtype in _SPARK_TYPES else "float64"

    def encode(self, values: np.ndarray) -> pa.Array:
        """The values of some rows."""
        rows = len(values)
        if self.kind == "vector":
            is_sparse = self.label.kind == "sparse_vector"
            return (_sparse if is_sparse else _dense)(values.reshape(rows, -1).astype(np.float64))
        dtype = np.dtype(self.dtype)
        if dtype.kind in "biu":  # such as a class of a model that gives a probability
            values = np.rint(values)
        flat = pa.array(values.reshape(-1).astype(dtype))
        return (
            flat
            if self.kind == "scalar"
            else pa.ListArray.from_arrays(_offsets(rows, len(flat) // rows), flat)
        )


_SPARK_TYPES = {
    "bool": T.BooleanType,
    "int8": T.ByteType,
    "int16": T.ShortType,
    "int32": T.IntegerType,
    "int64": T.LongType,
    "float32": T.FloatType,
    "float64": T.DoubleType,
}


def add_outputs(
    frame: Any, features: Sequence[Column], outputs: Sequence[Output], load: Callable[[], Predict]
) -> Any:
    """A DataFrame with the outputs of a model behind its columns; columns of the same names are replaced.

    Args:
        frame: with the columns ``features``, as they were in the training.
        load: called in each task that has rows; returns the function that predicts.
    """
    added = {output.name: output for output in outputs}
    given = [field.name for field in frame.schema.fields]
    if twice := [name for name in given if given.count(name) > 1]:  # Spark cannot take them from Python
        raise ValueError(f"the DataFrame has several columns {twice[0]!r}: rename or drop all but one")
    places = [given.index(column.name) for column in features]
    kept = [field for field in frame.schema.fields if field.name not in added]
    kept_places = [place for place, name in enumerate(given) if name not in added]
    fields = [*kept, *(T.StructField(output.name, output.spark_type(), True) for output in outputs)]
    rows = min(_ROWS, max(_BYTES // max(sum(column.bytes_of_row for column in features), 1), 1))

    def predict(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = None
        for whole in batches:
            for start in range(0, whole.num_rows, rows):
                batch = whole.slice(start, rows)
                function = function or load()  # not for a task without rows
                found = function(
                    [
                        to_numpy(batch.column(each), column)
                        for each, column in zip(places, features, strict=True)
                    ]
                )
                _check_count(found, outputs)
                columns = [batch.column(place) for place in kept_places]
                columns += [
                    output.encode(np.asarray(each)) for output, each in zip(outputs, found, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, [field.name for field in fields])

    plain = frame.toDF(*(f"c{place}" for place in range(len(given))))  # Spark fails at a name with a dot
    return plain.mapInArrow(predict, T.StructType(fields))


def _check_count(found: Sequence[np.ndarray], outputs: Sequence[Output]) -> None:
    if len(found) != len(outputs):
        names = [output.label.name for output in outputs]
        raise ValueError(f"the model gives {len(found)} outputs for {len(names)} labels: {names}")


def _offsets(rows: int, length: int) -> pa.Array:
    return pa.array(np.arange(rows + 1, dtype=np.int32) * length)


def _dense(values: np.ndarray) -> pa.Array:
    rows, width = values.shape
    return pa.StructArray.from_arrays(
        [
            pa.array(np.ones(rows, np.int8)),
            pa.nulls(rows, pa.int32()),
            pa.nulls(rows, pa.list_(pa.int32())),
            pa.ListArray.from_arrays(_offsets(rows, width), pa.array(values.reshape(-1))),
        ],
        fields=list(_VECTOR),
    )


def _sparse(values: np.ndarray) -> pa.Array:
    rows, width = values.shape
    _, places = found = np.nonzero(values)
    offsets = pa.array(np.concatenate([[0], np.cumsum((values != 0).sum(1))]).astype(np.int32))
    return pa.StructArray.from_arrays(
        [
            pa.array(np.zeros(rows, np.int8)),
            pa.array(np.full(rows, width, np.int32)),
            pa.ListArray.from_arrays(offsets, pa.array(places.astype(np.int32))),
            pa.ListArray.from_arrays(offsets, pa.array(values[found])),
        ],
        fields=list(_VECTOR),
    )
