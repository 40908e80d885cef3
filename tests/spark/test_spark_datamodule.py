"""Data modules, as the training on a rank uses them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod.spark.common.arrow import Column
from horovod.spark.common.datamodule import NVTabularDataModule, ParquetDataModule, PetastormDataModule


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """100 rows to train with, and 30 to validate with."""
    for name, rows in (("train", 100), ("val", 30)):
        (tmp_path / name).mkdir()
        table = pa.table({"id": np.arange(rows), "x": list(np.ones((rows, 3), np.float32))})
        pq.write_table(table, tmp_path / name / "a.parquet", row_group_size=10)
    return [str(tmp_path / "train"), str(tmp_path / "val")]


def ids(data: Any) -> list[int]:
    return [number for batch in data for number in batch["id"].tolist()]


def test_epochs_of_two_ranks(folders: list[str]) -> None:
    shared = {"train_batch_size": 16, "val_batch_size": 8, "shard_count": 2, "schema_fields": ["id"]}
    modules = [PetastormDataModule(*folders, cur_shard=rank, **shared) for rank in range(2)]
    assert PetastormDataModule is ParquetDataModule and modules[0].short_name == "parquet"
    seen = []
    for rank, module in enumerate(modules):
        with module as data:
            train = data.train_data()
            assert len(train) == 4 and [sorted(batch) for batch in train] == [["id"]] * 4
            seen.append([ids(train), ids(train)])
            assert ids(data.val_data()) == list(range(15 * rank, 15 * rank + 15))
    for epoch in range(2):
        assert sorted(seen[0][epoch] + seen[1][epoch]) == list(range(100))
    assert seen[0][0] != seen[0][1]


def test_arguments(folders: list[str]) -> None:
    torch = pytest.importorskip("torch")
    from horovod.spark.common.tensors import to_torch

    module = ParquetDataModule(
        f"file://{folders[0]}",
        None,
        has_val=False,
        shuffle=False,
        train_batch_size=60,
        transform_fn=lambda batch: {**batch, "x": batch["x"] * 2},
        schema_fields=[Column("id", "int64", (), "scalar"), "x"],
        to_tensors=to_torch,
        read_ahead=0,
    )
    first, second = module.train_data()
    assert first["x"].dtype == torch.float32 and first["x"].tolist() == [[2.0] * 3] * 60
    assert second["id"].tolist() == list(range(60, 100)) and module.val_data() is None


def test_batches_that_are_kept(folders: list[str]) -> None:
    data = ParquetDataModule(*folders, inmemory_cache_all=True).train_data()
    first = ids(data)
    Path(folders[0], "a.parquet").unlink()
    assert ids(data) == first and sorted(first) == list(range(100))


def test_what_is_not_there_says_what_to_use(folders: list[str]) -> None:
    with pytest.raises(NotImplementedError, match="ParquetDataModule"):
        NVTabularDataModule(*folders)
