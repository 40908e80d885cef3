"""Predictions for the rows of a DataFrame: Arrow arrays of its features in, those of the outputs out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import functions as sql
from pyspark.sql import types as T

from .arrow import Column, to_numpy

Predict = Callable[[list[np.ndarray]], Sequence[np.ndarray]]
"""Takes the features of some rows, each of shape (rows, ...), and returns the outputs, likewise."""

_INDICES = pa.list_(pa.field("element", pa.int32(), nullable=False))
_VALUES = pa.list_(pa.field("element", pa.float64(), nullable=False))
_VECTOR = [  # as Spark declares them
    pa.field("type", pa.int8(), nullable=False),
    pa.field("size", pa.int32()),
    pa.field("indices", _INDICES),
    pa.field("values", _VALUES),
]
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
        flat = values.reshape(-1)
        flat = _whole(flat, dtype) if dtype.kind in "biu" else pa.array(flat.astype(dtype))
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
    given = [field.name for field in frame.schema.fields]
    if twice := [name for name in given if given.count(name) > 1]:  # which of them is meant?
        raise ValueError(f"the DataFrame has several columns {twice[0]!r}: rename or drop all but one")
    places = [given.index(column.name) for column in features]
    kept = [place for place, name in enumerate(given) if name not in {output.name for output in outputs}]
    plain = frame.toDF(*(f"c{place}" for place in range(len(given))))  # Spark fails at a name with a dot
    predict = predictor(features, outputs, load)
    if not hasattr(sql, "arrow_udf"):
        return _by_mapping(plain, frame, places, kept, outputs, predict)

    def predict_all(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for batch in batches:
            arrays = batch if isinstance(batch, tuple) else (batch,)
            if len(arrays[0]):
                yield pa.StructArray.from_arrays(predict(arrays), names)

    names = [f"o{number}" for number in range(len(outputs))]
    types = map(Output.spark_type, outputs)
    found = T.StructType([T.StructField(*pair) for pair in zip(names, types, strict=True)])
    # Of a function that it may repeat, Spark would predict once for a filter, and once more for the result.
    function = sql.arrow_udf(predict_all, found).asNondeterministic()
    predicted = plain.select("*", function(*(f"c{place}" for place in places)).alias("found"))
    return predicted.select(
        *(sql.col(f"c{place}").alias(given[place]) for place in kept),
        *(sql.col(f"found.{name}").alias(each.name) for name, each in zip(names, outputs, strict=True)),
    )


def _by_mapping(
    plain: Any,
    frame: Any,
    places: Sequence[int],
    kept: Sequence[int],
    outputs: Sequence[Output],
    predict: Callable[[Sequence[pa.Array]], list[pa.Array]],
) -> Any:
    """Likewise before Spark 4.1, where all columns go through Python."""
    fields = [frame.schema.fields[place] for place in kept]
    fields += [T.StructField(output.name, output.spark_type()) for output in outputs]
    names = [field.name for field in fields]

    def predict_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                found = predict([batch.column(place) for place in places])
                yield pa.RecordBatch.from_arrays([*map(batch.column, kept), *found], names)

    return plain.mapInArrow(predict_all, T.StructType(fields))


def predictor(
    features: Sequence[Column], outputs: Sequence[Output], load: Callable[[], Predict]
) -> Callable[[Sequence[pa.Array]], list[pa.Array]]:
    """A function of the features of some rows, at least one, that gives their outputs."""
    rows = min(_ROWS, max(_BYTES // max(sum(column.bytes_of_row for column in features), 1), 1))
    function: Predict | None = None

    def predict(arrays: Sequence[pa.Array]) -> list[pa.Array]:
        nonlocal function
        function = function or load()
        parts = []
        for start in range(0, len(arrays[0]), rows):
            pairs = zip(arrays, features, strict=True)
            found = function([to_numpy(array.slice(start, rows), column) for array, column in pairs])
            _check_count(found, outputs)
            parts.append([each.encode(np.asarray(of)) for each, of in zip(outputs, found, strict=True)])
        return [pa.concat_arrays(each) for each in zip(*parts, strict=True)]

    return predict


def _check_count(found: Sequence[np.ndarray], outputs: Sequence[Output]) -> None:
    if len(found) != len(outputs):
        names = [output.label.name for output in outputs]
        raise ValueError(f"the model gives {len(found)} outputs for {len(names)} labels: {names}")


def _whole(values: np.ndarray, dtype: np.dtype) -> pa.Array:
    """Rounded, such as a class of a model that gives a probability; null where the type has no such number,
    as for NaN.
    """
    rounded = values if values.dtype.kind in "biu" else np.rint(values)  # which makes floats of integers
    with np.errstate(invalid="ignore"):
        found = rounded.astype(dtype)
    return pa.array(found, mask=np.isnan(rounded) if dtype.kind == "b" else found != rounded)


def _offsets(rows: int, length: int) -> pa.Array:
    return pa.array(np.arange(rows + 1, dtype=np.int32) * length)


def _dense(values: np.ndarray) -> pa.Array:
    rows, width = values.shape
    numbers = pa.ListArray.from_arrays(_offsets(rows, width), pa.array(values.reshape(-1)), type=_VALUES)
    columns = [
        pa.array(np.ones(rows, np.int8)),
        pa.nulls(rows, pa.int32()),
        pa.nulls(rows, _INDICES),
        numbers,
    ]
    return pa.StructArray.from_arrays(columns, fields=_VECTOR)


def _sparse(values: np.ndarray) -> pa.Array:
    rows, width = values.shape
    _, places = found = np.nonzero(values)
    offsets = pa.array(np.concatenate([[0], np.cumsum((values != 0).sum(1))]).astype(np.int32))
    columns = [
        pa.array(np.zeros(rows, np.int8)),
        pa.array(np.full(rows, width, np.int32)),
        pa.ListArray.from_arrays(offsets, pa.array(places.astype(np.int32)), type=_INDICES),
        pa.ListArray.from_arrays(offsets, pa.array(values[found]), type=_VALUES),
    ]
    return pa.StructArray.from_arrays(columns, fields=_VECTOR)
