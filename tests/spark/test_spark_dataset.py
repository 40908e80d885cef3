"""DataFrames written to a store, and what the files say of their columns."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_programs as programs
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions
from pyspark.sql import types as t

import horovod.spark
from horovod.spark.common.arrow import Column
from horovod.spark.common.dataset import Dataset, described, remove, write
from horovod.spark.common.reader import Batches
from horovod.spark.common.store import LocalStore

NUMBERS = {
    "flag": (t.BooleanType(), "bool"),
    "byte": (t.ByteType(), "int8"),
    "short": (t.ShortType(), "int16"),
    "int": (t.IntegerType(), "int32"),
    "long": (t.LongType(), "int64"),
    "float": (t.FloatType(), "float32"),
    "double": (t.DoubleType(), "float64"),
    "decimal": (t.DecimalType(10, 2), "float64"),
}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


def read(store: LocalStore, dataset: Dataset, path: str | None = None) -> dict[str, np.ndarray]:
    """All rows, as two ranks read them."""
    columns = list(dataset.columns.values())
    batches = [
        batch
        for rank in range(2)
        for batch in Batches(
            path or dataset.train_path,
            columns,
            16,
            rank=rank,
            size=2,
            filesystem=store.filesystem,
            equal="join",
        ).epoch()
    ]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in dataset.columns}


def test_every_type(session: Any, store: LocalStore) -> None:
    random = np.random.default_rng(0)
    rows = 60
    values = (random.normal(size=(rows, 4)) * (random.random((rows, 4)) < 0.5)).round(3)
    numbers = [int(number) for number in random.integers(0, 100, rows)]
    sparse = [Vectors.sparse(4, np.nonzero(row)[0], row[row != 0]) for row in values]
    dense = [Vectors.dense(row) for row in values]
    columns: dict[str, tuple[Any, list[Any]]] = {
        **{name: (kind, numbers) for name, (kind, _) in NUMBERS.items()},
        "flag": (t.BooleanType(), [number > 50 for number in numbers]),
        **{
            name: (kind, [float(n) for n in numbers])
            for name, kind in [("float", t.FloatType()), ("double", t.DoubleType())]
        },
        "decimal": (t.DecimalType(10, 2), [Decimal(n) / 4 for n in numbers]),
        "dense": (VectorUDT(), dense),
        "sparse": (VectorUDT(), sparse),
        "mixed": (VectorUDT(), [(sparse, dense)[n % 2][n] for n in range(rows)]),
        "floats": (t.ArrayType(t.FloatType()), values.tolist()),
        "ints": (t.ArrayType(t.IntegerType()), [[n, n + 1] for n in numbers]),
        "image": (t.BinaryType(), [bytearray(bytes([n % 256] * (n % 7 + 1))) for n in numbers]),
        "text": (t.StringType(), [f"ä{n}" for n in range(rows)]),
        "unused": (t.TimestampType(), [None] * rows),
    }
    schema = t.StructType([t.StructField(name, kind) for name, (kind, _) in columns.items()])
    df = session.createDataFrame(list(zip(*[column for _, column in columns.values()], strict=True)), schema)
    names = [name for name in columns if name != "unused"]
    dataset = write(df, store, [*names, "int"], partitions=3)

    expected = {name: Column(name, dtype, (), "scalar") for name, (_, dtype) in NUMBERS.items()}
    for name in ("dense", "sparse", "mixed"):
        expected[name] = Column(name, "float64", (4,), f"{name}_vector")
    expected["floats"] = Column("floats", "float32", (4,), "array")
    expected["ints"] = Column("ints", "int32", (2,), "array")
    expected["image"] = Column("image", "object", (), "binary")
    expected["text"] = Column("text", "object", (), "scalar")
    assert dataset.columns == expected and dataset.train_rows == rows and dataset.val_path is None

    found = read(store, dataset)
    order = {text: n for n, text in enumerate(columns["text"][1])}
    by_text = [order[text] for text in found["text"]]
    assert sorted(found["text"]) == sorted(columns["text"][1])
    for name in ("dense", "sparse", "mixed"):
        np.testing.assert_array_equal(found[name], values[by_text])
    np.testing.assert_array_equal(found["floats"], values[by_text].astype("float32"))
    for name in ("byte", "short", "int", "long", "float", "double"):
        assert found[name].tolist() == [numbers[n] for n in by_text]
    assert found["decimal"].tolist() == [numbers[n] / 4 for n in by_text]
    assert found["flag"].tolist() == [numbers[n] > 50 for n in by_text]
    assert [bytes(image) for image in found["image"]] == [bytes(columns["image"][1][n]) for n in by_text]
    remove(store, dataset)
    assert list(Path(store.prefix_path).iterdir()) == []


def test_ranks_read_each_row_once_and_join(session: Any, store: LocalStore) -> None:
    """One of them has a batch more than the other."""
    dataset = write(session.range(31).selectExpr("id", "array(id / 2, 1.0D) as x"), store, ["id", "x"])
    found = horovod.spark.run(programs.reads_and_joins, [store, dataset], num_proc=2)
    (first, fewer), (second, more) = found
    assert sorted(first + second) == list(range(31)) and (fewer, more) == (3, 4)


def test_validation_by_fraction(session: Any, store: LocalStore) -> None:
    df = session.range(1000).withColumn("x", functions.col("id") * 2)
    dataset = write(df, store, ["x"], validation=0.2, partitions=2, seed=7)
    again = write(df, store, ["x"], validation=0.2, partitions=2, seed=7)
    assert again.train_path != dataset.train_path
    assert dataset.train_rows + dataset.val_rows == 1000 and 140 < dataset.val_rows < 260
    train, val = read(store, dataset)["x"], read(store, dataset, dataset.val_path)["x"]
    assert sorted([*train, *val]) == list(range(0, 2000, 2))
    assert sorted(read(store, again, again.val_path)["x"]) == sorted(val)
    assert abs(np.corrcoef(np.arange(len(train)), train)[0, 1]) < 0.2  # not in the order of the split


@pytest.mark.parametrize("marks", ["id % 4 = 0", "if(id % 4 = 0, 1, 0)", "if(id % 4 = 0, 0.5, null)"])
def test_validation_by_column(session: Any, store: LocalStore, marks: str) -> None:
    df = session.range(100).withColumn("is val", functions.expr(marks))
    dataset = write(df, store, ["id"], validation="is val")
    assert list(dataset.columns) == ["id"] and (dataset.train_rows, dataset.val_rows) == (75, 25)
    assert set(read(store, dataset, dataset.val_path)["id"]) == set(range(0, 100, 4))


def test_parquet_that_is_there(session: Any, store: LocalStore) -> None:
    with pytest.raises(FileNotFoundError):
        described(store)
    df = session.range(30).selectExpr("id", "array(id, id + 1) as pair")
    df.write.parquet(store.get_full_path(store.get_train_data_path()))
    found = described(store)
    assert found.columns["pair"] == Column("pair", "int64", (2,), "array")
    assert found.train_rows == 30 and found.val_path is None
    df.limit(5).write.parquet(store.get_full_path(store.get_val_data_path()))
    assert described(store, ["pair"]).val_rows == 5
    with pytest.raises(ValueError, match="no column 'x', but id, pair"):
        described(store, ["x"])


@pytest.mark.parametrize(
    ("expression", "arguments", "text"),
    [
        ("if(id = 7, null, id)", {}, "'x' has 1 nulls"),
        ("if(id = 7, array(), array(id))", {}, "'x' has 1 nulls, or empty arrays"),
        ("if(id = 7, array(id, id), array(id))", {}, "'x' has (vectors or arrays of different|rows of)"),
        ("current_timestamp()", {}, "'x' has values of the type timestamp"),
        ("array(array(id))", {}, r"'x' .* flatten\(column\)"),
        ("id", {"validation": 1.5}, "validation=1.5 is no fraction"),
        ("id", {"validation": "absent"}, "no column 'absent', but id, x"),
        ("id", {"columns": ["y"]}, "no column 'y', but id, x"),
    ],
)
def test_refusals(
    session: Any, store: LocalStore, expression: str, arguments: dict[str, Any], text: str
) -> None:
    df = session.range(10).withColumn("x", functions.expr(expression)).coalesce(1)
    arguments = {"columns": ["x"], **arguments}
    with pytest.raises((TypeError, ValueError), match=text):
        write(df, store, **arguments)
    folder = Path(store.prefix_path)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_failed_write_leaves_nothing(session: Any, store: LocalStore) -> None:
    df = session.range(10).selectExpr("if(id = 7, raise_error('planted'), id) as x")
    with pytest.raises(Exception, match="planted"):
        write(df, store, ["x"], validation=0.5, idx="mine")
    assert list(Path(store.prefix_path).iterdir()) == []


def test_a_store_that_is_a_file(session: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = LocalStore(str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot write the DataFrame to .*: .*Parent path is not a directory"):
        write(session.range(4), store, ["id"])


def test_names_with_dots_and_backticks(session: Any, store: LocalStore) -> None:
    df = session.range(4).selectExpr("array(id, id) as a", "id as `a.b`", "id % 2 as `c d``e`")
    dataset = write(df, store, df.columns, validation="c d`e")
    assert dataset.columns["a"] == Column("a", "int64", (2,), "array")
    rows = read(store, dataset, dataset.val_path)
    assert sorted(rows["a.b"]) == [1, 3] and sorted(rows["c d`e"]) == [1, 1]


def test_no_rows_are_refused(session: Any, store: LocalStore) -> None:
    with pytest.raises(ValueError, match="no rows to train with"):
        write(session.range(0), store, ["id"])
