"""Columns of predictions: which rows a model gets, and what becomes of all other columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors, VectorUDT
from pyspark.sql import functions as sql
from pyspark.sql import types as T
from spark_programs import doubling

from horovod.spark.common.arrow import Column
from horovod.spark.common.transform import Output, Predict, add_outputs, predictor

WAYS = [pytest.param(True, id="arrow_udf"), pytest.param(False, id="mapInArrow")]
X, Y = Column("x", "float64", (), "scalar"), Column("y", "float64", (), "scalar")


@pytest.fixture(params=WAYS)
def is_new(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether Spark is 4.1 or later, whose functions take Arrow's arrays."""
    if not request.param:
        monkeypatch.delattr(sql, "arrow_udf", raising=False)
    elif not hasattr(sql, "arrow_udf"):
        pytest.skip("Spark is older than 4.1")
    return bool(request.param)


def outputs(*columns: Column) -> list[Output]:
    return [Output(f"{column.name}__output", column, column.shape) for column in columns]


@pytest.mark.parametrize(("width", "most"), [(3, 4096), (1 << 12, 1024), (8 << 20, 1)])
def test_a_model_takes_rows_of_bounded_size(width: int, most: int) -> None:
    """4096 rows at a time, or 16 MiB of them, or one."""
    seen: list[int] = []

    def load() -> Any:
        def predict(features: list[np.ndarray]) -> list[np.ndarray]:
            seen.append(len(features[0]))
            return [features[0][:, :1]]

        return predict

    features = [Column("x", "float32", (width,), "array")]
    output = Output("p", Column("y", "float32", (), "scalar"), (1,))
    rows = 2 * most + 1
    values = pa.array(np.repeat(np.arange(rows, dtype=np.float32), width))
    (found,) = predictor(features, [output], load)([pa.FixedSizeListArray.from_arrays(values, width)])
    assert found.to_pylist() == list(range(rows))
    assert seen == [most, most, 1]


def test_values_of_all_kinds(session: Any, is_new: bool) -> None:
    """Several inputs and outputs, over batches that are none of Spark's."""
    vectors = [Vectors.sparse(3, {n % 3: float(n)}) for n in range(50)]
    lines = [(n, [float(n), 1.0], vectors[n], Vectors.dense(n, 2)) for n in range(50)]
    schema = T.StructType(
        [
            T.StructField("i", T.LongType()),
            T.StructField("a", T.ArrayType(T.FloatType())),
            T.StructField("s", VectorUDT()),
            T.StructField("d", VectorUDT()),
        ]
    )
    frame = session.createDataFrame(lines, schema).repartition(3)
    columns = [Column("i", "int64", (), "scalar"), Column("a", "float32", (2,), "array")]
    columns += [Column("s", "float64", (3,), "sparse_vector"), Column("d", "float64", (2,), "dense_vector")]
    added = add_outputs(frame, columns, outputs(*columns), doubling)
    assert [field.dataType for field in added.schema.fields] == 2 * [field.dataType for field in schema]
    rows = added.collect()
    assert len(rows) == 50
    for row in rows:
        n = row["i"]
        assert tuple(row)[:4] == lines[n]
        assert (row["i__output"], row["a__output"]) == (2 * n, [2.0 * n, 2.0])
        assert isinstance(row["s__output"], SparseVector) and isinstance(row["d__output"], DenseVector)
        assert row["s__output"] == Vectors.sparse(3, {n % 3: 2.0 * n} if n else {})
        assert row["d__output"] == Vectors.dense(2 * n, 4)


def test_names_and_nested_columns(session: Any, is_new: bool) -> None:
    """Whatever is no feature passes as it is, with what Spark knows of it."""
    nested = T.StructType().add("x", T.IntegerType()).add("l", T.ArrayType(T.LongType()))
    kinds: dict[str, Any] = {"nested": nested, "a.b": T.LongType(), "c d": T.StringType()}
    kinds |= {"x.y": T.DateType()}
    kinds |= dict.fromkeys(["found", "c0", "o0", "ä"], T.IntegerType())
    feature = Column("x`.z", "float64", (), "scalar")
    fields = [T.StructField(name, kind, True, {"of": name}) for name, kind in kinds.items()]
    schema = T.StructType([*fields, T.StructField(feature.name, T.DoubleType(), False, {"of": "x"})])
    lines = [((n, [n, None]) if n else None, n, None, None, 1, 2, 3, 4, float(n)) for n in range(4)]
    frame = session.createDataFrame(lines, schema)
    added = add_outputs(frame, [feature], outputs(feature), doubling)
    assert added.schema.fields[:-1] == schema.fields
    assert [field.metadata for field in added.schema.fields[:-1]] == [field.metadata for field in schema]
    assert [tuple(row) for row in added.collect()] == [(*line, 2 * line[-1]) for line in lines]


def test_columns_of_one_name(session: Any, is_new: bool) -> None:
    frame = session.range(3).selectExpr("double(id) as x", "id as x")
    with pytest.raises(ValueError, match="the DataFrame has several columns 'x': rename or drop all but one"):
        add_outputs(frame, [X], outputs(Y), doubling)


def test_empty_partitions(session: Any, is_new: bool) -> None:
    """Load no model."""

    def load() -> Predict:
        raise AssertionError("loaded")

    none = session.range(0, 10, 1, 4).selectExpr("double(id) as x").where("x < 0")
    assert add_outputs(none, [X], outputs(Y), load).collect() == []
    some = session.range(0, 10, 1, 5).selectExpr("double(id) as x").where("x < 3")
    added = add_outputs(some, [X], outputs(Y), doubling)
    assert [row["y__output"] for row in added.collect()] == [0, 2, 4]


@pytest.mark.parametrize(
    ("dtype", "given", "wanted"),
    [
        ("int8", [1.6, 127.0, 128.0], [2, 127, None]),
        ("int32", [np.nan, 3e9, -np.inf], [None] * 3),
        ("int64", [2.0**62, 1e19], [1 << 62, None]),
        ("bool", [0.2, np.nan, 0.7], [False, None, True]),
    ],
)
def test_numbers_that_the_type_of_the_label_has_not(dtype: str, given: Any, wanted: Any) -> None:
    (output,) = outputs(Column("y", dtype, (), "scalar"))
    assert output.encode(np.array(given)).to_pylist() == wanted


def test_nulls_and_models_of_another_kind() -> None:
    """Are told with the name of the column."""
    with pytest.raises(ValueError, match="column 'x' has 1 nulls in 2 rows"):
        predictor([X], outputs(Y), doubling)([pa.array([1.0, None])])
    with pytest.raises(ValueError, match=r"the model gives 1 outputs for 2 labels: \['y', 'x'\]"):
        predictor([X], outputs(Y, X), doubling)([pa.array([1.0])])


def test_other_columns_are_not_read_by_python(session: Any) -> None:
    """One here is of a type that Arrow does not have; and each row is predicted once, whatever is asked."""
    if not hasattr(sql, "arrow_udf"):
        pytest.skip("Spark is older than 4.1")
    columns = ["double(id) as x", "double(id) as z", "make_interval(0, int(id)) as interval"]
    frame = session.range(0, 8, 1, 2).selectExpr(*columns)
    counted = session.sparkContext.accumulator(0)

    def load() -> Predict:
        def predict(features: list[np.ndarray]) -> list[np.ndarray]:
            counted.add(len(features[0]))
            return [features[0] + 1]

        return predict

    once = add_outputs(frame, [X], outputs(Y), load)
    rows = once.where("y__output > 4").selectExpr("y__output + 1 as a", "y__output + 2 as b", "z", "interval")
    assert [tuple(row)[:3] for row in rows.select("a", "b", "z").collect()] == [
        (n + 2, n + 3, n) for n in range(4, 8)
    ]
    assert rows.count() == 4
    assert counted.value == 2 * 8
    assert once.selectExpr("string(interval) as text").first()["text"] == "0 seconds"


def test_one_model_behind_the_other(session: Any, is_new: bool) -> None:
    """And two beside each other, the second of which replaces a column."""
    frame = session.range(0, 10, 1, 3).selectExpr("double(id) as x", "'old' as z__output")
    z = Column("z", "float64", (), "scalar")
    first = add_outputs(frame, [X], outputs(Y), doubling)
    beside = add_outputs(first, [X], outputs(z), doubling)
    behind = add_outputs(beside, [Column("y__output", "float64", (), "scalar"), X], outputs(z, X), doubling)
    assert behind.columns == ["x", "y__output", "z__output", "x__output"]
    assert [tuple(row) for row in beside.collect()] == [(n, 2 * n, 2 * n) for n in range(10)]
    assert [tuple(row) for row in behind.collect()] == [(n, 2 * n, 4 * n, 2 * n) for n in range(10)]
