"""How the training on a rank gets its data: by a class that reads Parquet, or one of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import fsspec

from horovod.data import BaseDataLoader

from . import parquet
from .arrow import Batch, Column
from .dataset import columns_of
from .reader import Batches


class DataModule(ABC):
    """The data of a rank, to be used in a ``with`` statement.

    Args:
        train_dir, val_dir: where the data are.
        num_train_epochs: so many times ``train_data`` is iterated over.
        has_val: whether there are data to validate with.
        train_batch_size, val_batch_size: rows of a batch.
        shuffle: whether the rows to train with come in random order.
        transform_fn: changes a batch.
        inmemory_cache_all: whether the batches of the first epoch are kept for those that follow.
        cur_shard, shard_count: this rank, and how many share the rows.
        schema_fields: the columns to read; by default all.
        storage_options: arguments of the file system.
        steps_per_epoch_train, steps_per_epoch_val: how many batches the training takes in an epoch.
        verbose, kwargs: for subclasses.
    """

    short_name: str | None = None

    def __init__(
        self,
        train_dir: str,
        val_dir: str | None,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Callable[[Any], Any] | None = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Sequence[Column | str] | None = None,
        storage_options: dict[str, Any] | None = None,
        steps_per_epoch_train: int | None = None,
        steps_per_epoch_val: int | None = None,
        verbose: bool = True,
        **kwargs: Any,
    ) -> None:
        self.train_dir, self.val_dir = train_dir, val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size, self.val_batch_size = train_batch_size, val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard, self.shard_count = cur_shard, shard_count
        self.schema_fields = schema_fields
        self.storage_options = storage_options or {}
        self.steps_per_epoch_train, self.steps_per_epoch_val = steps_per_epoch_train, steps_per_epoch_val
        self.verbose = verbose
        self.kwargs = kwargs

    def __enter__(self) -> DataModule:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        """Frees what the data hold; there is nothing by default."""
        return None

    @abstractmethod
    def train_data(self) -> Iterable[Any]:
        """The batches to train with; each iteration is an epoch."""

    @abstractmethod
    def val_data(self) -> Iterable[Any] | None:
        """The batches to validate with, if there are any."""


class ParquetDataModule(DataModule):
    """Reads Parquet files as ``reader.Batches`` does. Takes the arguments of ``DataModule``, and these:

    Args:
        to_tensors: makes of a batch of numpy arrays what the training takes, such as ``tensors.to_torch``.
        seed, read_ahead, equal, buffer_rows: those of ``Batches``.
    """

    short_name = "parquet"

    def __init__(
        self,
        *args: Any,
        to_tensors: Callable[[Batch], Any] = dict,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.to_tensors = to_tensors
        self.options: dict[str, Any] = {"seed": seed}
        self.options |= {
            name: kwargs[name] for name in ("read_ahead", "equal", "buffer_rows") if name in kwargs
        }

    def train_data(self) -> Epochs:
        return self._epochs(self.train_dir, self.train_batch_size, self.shuffle)

    def val_data(self) -> Epochs | None:
        return (
            self._epochs(self.val_dir, self.val_batch_size, False) if self.has_val and self.val_dir else None
        )

    def _epochs(self, path: str, batch_size: int, shuffle: bool) -> Epochs:
        filesystem, path = fsspec.core.url_to_fs(path, **self.storage_options)
        batches = Batches(
            path,
            self._columns(path, filesystem),
            batch_size,
            filesystem=filesystem,
            rank=self.cur_shard,
            size=self.shard_count,
            shuffle=shuffle,
            transform=self.transform_fn,
            **self.options,
        )
        return Epochs(batches, self.to_tensors, self.inmemory_cache_all)

    def _columns(self, path: str, filesystem: Any) -> list[Column]:
        given = self.schema_fields
        known = [column for column in given or () if isinstance(column, Column)]
        if given is not None and len(known) == len(given):
            return known
        names = None if given is None else [each.name if isinstance(each, Column) else each for each in given]
        return list(columns_of(path, parquet.row_groups(parquet.files_at(path, filesystem)), names).values())


PetastormDataModule = ParquetDataModule  # a name that programs ask for


class NVTabularDataModule:
    """A name of Horovod's, whose reader needed NVTabular."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "NVTabularDataModule is not there, since NVTabular is not maintained any more. Leave data_module "
            "out: then ParquetDataModule reads the same files"
        )


class Epochs(BaseDataLoader):
    """Gives the batches of the next epoch each time it is iterated over."""

    def __init__(self, batches: Batches, to_tensors: Callable[[Batch], Any], keep: bool) -> None:
        self._batches = batches
        self._to_tensors = to_tensors
        self._keep = keep
        self._kept: list[Batch] | None = None
        self._next = 0

    def __len__(self) -> int:
        return len(self._batches)

    def _iterate(self) -> Iterator[Batch]:
        if self._kept is not None:
            yield from self._kept
            return
        number, self._next = self._next, self._next + 1
        read: list[Batch] = []
        for batch in self._batches.epoch(number):
            if self._keep:
                read.append(batch)
            yield batch
        self._kept = read if self._keep else None

    def _process_batch(self, batch: Batch) -> Any:
        return self._to_tensors(batch)
