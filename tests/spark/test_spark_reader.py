"""A rank's batches from Parquet files: whose rows, in which order, what values, and in how much memory."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod.spark.common import parquet, reader
from horovod.spark.common.arrow import Column, to_numpy
from horovod.spark.common.dataset import columns_of
from horovod.spark.common.reader import Batches

ID = Column("id", "int64", (), "scalar")


def write_rows(folder: Path, files: list[int], rows_of_group: int) -> int:
    """Files of so many rows each, which are numbered in one column; returns how many there are."""
    first = 0
    for number, rows in enumerate(files):
        table = pa.table({"id": np.arange(first, first + rows)})
        pq.write_table(table, folder / f"part-{number:03}.parquet", row_group_size=rows_of_group)
        first += rows
    (folder / "_SUCCESS").touch()  # as Spark leaves it
    return first


def ids(batches: Batches, epoch: int = 0) -> list[int]:
    return [number for batch in batches.epoch(epoch) for number in batch["id"].tolist()]


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("files", "rows_of_group"), [([1], 1), ([5], 100), ([100], 100), ([7, 0, 50, 23, 1], 10), ([64, 64], 16)]
)
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_each_row_once_or_shares_of_equal_size(
    tmp_path: Path, files: list[int], rows_of_group: int, size: int, batch_size: int, shuffle: bool
) -> None:
    rows = write_rows(tmp_path, files, rows_of_group)
    for equal in ("join", "pad"):
        ranks = [
            Batches(
                str(tmp_path),
                [ID],
                batch_size,
                rank=rank,
                size=size,
                shuffle=shuffle,
                equal=equal,
                buffer_rows=9,
                read_ahead=0,
            )
            for rank in range(size)
        ]
        for epoch in (0, 1):
            found = [ids(batches, epoch) for batches in ranks]
            steps = [len(list(batches.epoch(epoch))) for batches in ranks]
            assert steps == [len(batches) for batches in ranks]
            together = np.bincount(np.concatenate(found).astype(int), minlength=rows)
            if equal == "join":
                assert together.tolist() == [1] * rows and max(steps) - min(steps) <= 1
            else:
                assert set(map(len, found)) == {-(-rows // size)} and len(set(steps)) == 1
                assert together.min() >= 1 and together.sum() < rows + size


def test_without_shuffling_the_order_is_that_of_the_files(tmp_path: Path) -> None:
    write_rows(tmp_path, [40, 60], 16)
    assert ids(Batches(str(tmp_path), [ID], 7)) == list(range(100))
    second = Batches(str(tmp_path), [ID], 7, rank=1, size=3)
    assert ids(second) == list(range(33, 67))


def test_no_rows_are_no_batches(tmp_path: Path) -> None:
    write_rows(tmp_path, [0], 1)
    batches = Batches(str(tmp_path), [ID], 4, rank=1, size=2, shuffle=True)
    assert len(batches) == 0 and ids(batches) == []


def test_a_seed_and_an_epoch_give_the_same_order(tmp_path: Path) -> None:
    write_rows(tmp_path, [200, 200], 50)

    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(str(tmp_path), [ID], 16, rank=1, size=2, shuffle=True, seed=seed, buffer_rows=64)
        return ids(batches, epoch)

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1) and order(0, 0) != order(1, 0)
    assert set(order(0, 0)) != set(order(0, 1))  # other row groups, too


def test_a_single_row_group_is_shuffled_anew_in_each_epoch(tmp_path: Path) -> None:
    write_rows(tmp_path, [100], 100)
    first, second = (Batches(str(tmp_path), [ID], 16, rank=rank, size=2, shuffle=True) for rank in range(2))
    assert sorted(ids(first, 0)) == sorted(ids(first, 1)) == list(range(50))
    assert ids(first, 0) != ids(first, 1)
    assert ids(first, 0) != [number - 50 for number in ids(second, 0)]


def test_a_large_buffer_makes_each_order_equally_likely(tmp_path: Path) -> None:
    """Where a row comes has nothing to do with where it was: chi-squared of 10 by 10 fields, 81 degrees of
    freedom, of which 160 is exceeded once in a million.
    """
    rows = write_rows(tmp_path, [300, 700], 100)
    batches = Batches(str(tmp_path), [ID], 32, shuffle=True, read_ahead=0)
    counts = np.zeros((10, 10))
    for epoch in range(30):
        np.add.at(counts, (np.arange(rows) // 100, np.array(ids(batches, epoch)) // 100), 1)
    assert ((counts - 300) ** 2 / 300).sum() < 160


def test_the_buffer_is_bounded_for_text_whatever_its_column_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [f"{n:01000}" for n in range(100)]}), tmp_path / "0.parquet")
    batches = Batches(str(tmp_path), [Column("a.b", "object", (), "scalar")], 5, shuffle=True)
    assert batches._buffer_rows < 2 * reader.BUFFER_BYTES / 1000


def test_a_small_buffer_mixes_row_groups(tmp_path: Path) -> None:
    """Neighbours in a file are no neighbours in a batch, and each epoch begins elsewhere."""
    write_rows(tmp_path, [4000], 200)
    batches = Batches(str(tmp_path), [ID], 50, shuffle=True, buffer_rows=800, read_ahead=0)
    orders = np.array([ids(batches, epoch) for epoch in range(8)])
    neighbours = np.abs(np.diff(orders, axis=1)) == 1
    assert neighbours.mean() < 0.01
    groups_of_batch = [len(set(batch // 200)) for order in orders for batch in order.reshape(-1, 50)]
    assert np.median(groups_of_batch) >= 4
    correlations = np.corrcoef(np.vstack([np.arange(4000), orders])) - np.eye(9)
    assert np.abs(correlations).max() < 0.6  # 20 row groups in random order; without that it is 0.98


def columns_at(path: Path) -> list[Column]:
    return list(columns_of(str(path), parquet.row_groups(parquet.files_at(str(path)))).values())


def vectors(rows: np.ndarray, sparse: np.ndarray) -> pa.Array:
    """Rows as Spark stores vectors, those that are marked as sparse ones."""
    made = [
        {
            "type": 0,
            "size": len(row),
            "indices": np.nonzero(row)[0].tolist(),
            "values": row[row != 0].tolist(),
        }
        if is_sparse
        else {"type": 1, "size": None, "indices": None, "values": row.tolist()}
        for row, is_sparse in zip(rows, sparse, strict=True)
    ]
    fields = {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32())}
    return pa.array(made, pa.struct({**fields, "values": pa.list_(pa.float64())}))


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("rows", [1, 37, 500])
def test_values_are_those_of_numpy(tmp_path: Path, rows: int, shuffle: bool) -> None:
    random = np.random.default_rng(rows)
    dense = random.normal(size=(rows, 5)) * (random.random((rows, 5)) < 0.5)
    numbers = {
        str(np.dtype(kind)): (random.normal(size=rows) * 100).astype(kind)
        for kind in ("bool", "i1", "i2", "i4", "i8", "u1", "f4", "f8")
    }
    arrays = {kind: random.integers(0, 100, (rows, 3)).astype(kind) for kind in ("int32", "float32")}
    expected = {
        "id": np.arange(rows),
        **numbers,
        **{f"array_{kind}": values for kind, values in arrays.items()},
        **dict.fromkeys(("fixed", "dense", "sparse", "mixed"), dense),
        "binary": np.array([random.bytes(n % 9) for n in range(rows)], object),
        "string": np.array([f"ä{n}" for n in range(rows)], object),
        "decimal": np.arange(rows) / 4,
    }
    table = {name: pa.array(expected[name]) for name in ("id", *numbers, "binary", "string")}
    for kind, values in arrays.items():
        table[f"array_{kind}"] = pa.array(list(values))
    table["fixed"] = pa.FixedSizeListArray.from_arrays(dense.ravel(), 5)
    table["dense"] = vectors(dense, np.zeros(rows, bool))
    table["sparse"] = vectors(dense, np.ones(rows, bool))
    table["mixed"] = vectors(dense, np.arange(rows) % 3 == 0)
    table["decimal"] = pa.array(expected["decimal"]).cast(pa.decimal128(20, 2))
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=100)

    columns = columns_at(tmp_path)
    kinds = {column.name: column.kind for column in columns if column.kind != "scalar"}
    assert kinds == {
        "array_int32": "array",
        "array_float32": "array",
        "fixed": "array",
        "dense": "dense_vector",
        "sparse": "sparse_vector",
        "mixed": "mixed_vector" if rows > 1 else "sparse_vector",
        "binary": "binary",
    }
    read = list(Batches(str(tmp_path), columns, 7, shuffle=shuffle, buffer_rows=50).epoch(3))
    order = np.concatenate([batch["id"] for batch in read])
    for column in columns:
        values = np.concatenate([batch[column.name] for batch in read])
        assert values.dtype == column.dtype and values.shape == (rows, *column.shape)
        np.testing.assert_array_equal(values, expected[column.name][order], column.name)


@pytest.mark.parametrize(
    ("array", "column", "address"),
    [
        (pa.array(np.arange(8.0)), Column("x", "float64", (), "scalar"), lambda a: a.buffers()[1]),
        (
            pa.array(list(np.ones((4, 3), np.float32))),
            Column("x", "float32", (3,), "array"),
            lambda a: a.values.buffers()[1],
        ),
        (
            vectors(np.ones((4, 3)), np.zeros(4, bool)),
            Column("x", "float64", (3,), "dense_vector"),
            lambda a: a.field("values").values.buffers()[1],
        ),
    ],
    ids=["scalar", "array", "vector"],
)
def test_numbers_are_not_copied(array: Any, column: Column, address: Any) -> None:
    values = to_numpy(array, column)
    part = to_numpy(array.slice(1, 2), column)
    assert values.ctypes.data == address(array).address
    assert part.ctypes.data == values[1:].ctypes.data and part.tolist() == values[1:3].tolist()


def test_tensors_share_the_memory_of_batches(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    torch = pytest.importorskip("torch")
    from horovod.spark.common.tensors import to_torch

    pq.write_table(pa.table({"x": list(np.ones((9, 4)))}), tmp_path / "a.parquet")
    (batch,) = Batches(str(tmp_path), columns_at(tmp_path), 9).epoch()
    tensors = to_torch(batch)
    tensors["x"] += 1  # which a program may do, and of which torch does not warn
    assert tensors["x"].dtype == torch.float64 and batch["x"].tolist() == [[2.0] * 4] * 9
    assert not [warning for warning in recwarn if "not writable" in str(warning.message)]


def test_tensors_of_tensorflow(tmp_path: Path) -> None:
    """In another process, since TensorFlow and this one's libraries may not agree."""
    pytest.importorskip("tensorflow")
    values = np.arange(400, dtype=np.float32).reshape(100, 4)
    table = {"x": list(values), "flag": np.arange(100) % 2 == 0, "text": [f"ä{n}" for n in range(100)]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    subprocess.run([sys.executable, "-c", TENSORS, str(tmp_path)], check=True)


TENSORS = """
import sys
import numpy as np
from horovod.spark.common import parquet
from horovod.spark.common.dataset import columns_of
from horovod.spark.common.reader import Batches
from horovod.spark.common.tensors import to_tensorflow
path = sys.argv[1]
columns = list(columns_of(path, parquet.row_groups(parquet.files_at(path))).values())
for shuffle in (False, True):
    shared = 0
    for batch in Batches(path, columns, 10, shuffle=shuffle).epoch():
        tensors = to_tensorflow(batch)
        for name, values in batch.items():
            expected = np.char.encode(values.astype(str)) if name == "text" else values
            assert np.array_equal(tensors[name].numpy().astype(expected.dtype), expected), name
        batch["x"][0, 0] = -1
        shared += float(tensors["x"][0, 0]) == -1
    assert shared >= 2, shared  # 160 bytes a batch: some begin at a multiple of 64
"""


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[1.0, 2.0], [3.0]], "'x' has vectors or arrays of different lengths"),
        ([[1.0], [2.0, 3.0, 4.0]], "'x' has rows of 2 and of 1 values"),
        ([[1.0, None], [2.0, 3.0]], "'x' has 1 nulls"),
        ([[1.0, 1.0], None], "'x' has 1 nulls"),
        ([1, None, 2], "'x' has 1 nulls"),
        (["a", None], "'x' has 1 nulls"),
    ],
)
def test_what_is_no_array_is_refused(tmp_path: Path, rows: list[Any], text: str) -> None:
    pq.write_table(pa.table({"x": rows}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=text):
        list(Batches(str(tmp_path), columns_at(tmp_path), 4).epoch())


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([1, None], "'x' has 1 nulls in 2 rows"),
        ([[1], None], "'x' has 1 nulls in 2 rows"),
        ([[1], [None]], "arrays of column 'x' have 1 nulls in them"),
    ],
)
def test_nulls_are_refused_where_footers_do_not_tell(tmp_path: Path, rows: list[Any], text: str) -> None:
    pq.write_table(pa.table({"x": rows}), tmp_path / "a.parquet", write_statistics=False)
    with pytest.raises(ValueError, match=text):
        list(Batches(str(tmp_path), columns_at(tmp_path), 4).epoch())


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.list_(pa.int32())), pa.timestamp("us"), pa.map_(pa.string(), pa.int8())]
)
def test_other_types_are_refused(tmp_path: Path, kind: Any) -> None:
    pq.write_table(pa.table({"x": pa.array([], kind), "y": pa.array([], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.nulls(1, kind), "y": [1]}), tmp_path / "b.parquet")
    with pytest.raises((TypeError, ValueError), match="column 'x' has"):
        columns_at(tmp_path)


def test_a_path_without_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no .*absent, as .* all executors have to see"):
        Batches(str(tmp_path / "absent"), [ID], 4)


def test_a_file_that_vanishes_ends_the_epoch(tmp_path: Path) -> None:
    write_rows(tmp_path, [10, 10], 10)
    batches = Batches(str(tmp_path), [ID], 10)
    (tmp_path / "part-001.parquet").unlink()
    epoch = batches.epoch()
    assert next(epoch)["id"].tolist() == list(range(10))
    with pytest.raises(FileNotFoundError):
        next(epoch)


def test_an_epoch_that_is_left_early_ends_its_thread(tmp_path: Path) -> None:
    write_rows(tmp_path, [1000], 10)
    epoch = Batches(str(tmp_path), [ID], 1).epoch()
    next(epoch)
    assert "horovod-read-ahead" in {thread.name for thread in threading.enumerate()}
    epoch.close()
    assert "horovod-read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_transformation_is_applied_ahead(tmp_path: Path) -> None:
    write_rows(tmp_path, [10], 10)
    names = []

    def double(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names.append(threading.current_thread().name)
        return {"twice": batch["id"] * 2}

    read = list(Batches(str(tmp_path), [ID], 5, transform=double).epoch())
    assert [batch["twice"].tolist() for batch in read] == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
    assert names == ["horovod-read-ahead"] * 2


PEAK = """
import sys
from horovod.spark.common import parquet
from horovod.spark.common.dataset import columns_of
from horovod.spark.common.reader import Batches
path = sys.argv[1]
columns = list(columns_of(path, parquet.row_groups(parquet.files_at(path))).values())
rows = 0
for batch in Batches(path, columns, 256, shuffle=True, buffer_rows=4000).epoch():
    rows += len(batch["x"])
# Not getrusage(), whose peak is at least what the process had that started this one.
print(rows, *(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """The peak of a process that reads 40 MB, and of one that reads 200 MB."""
    values = np.random.default_rng(0).random(10_000 * 125)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 125)})  # 10 MB
    peaks = {}
    for files in (4, 20):
        folder = tmp_path / str(files)
        folder.mkdir()
        pq.write_table(
            table, folder / "0.parquet", row_group_size=5000, compression="none", use_dictionary=False
        )
        for number in range(1, files):
            (folder / f"{number}.parquet").hardlink_to(folder / "0.parquet")
        told = subprocess.run(
            [sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True
        ).stdout
        rows, peaks[files] = map(int, told.split())
        assert rows == 10_000 * files
    assert peaks[20] < peaks[4] + 20_000, peaks  # KiB
