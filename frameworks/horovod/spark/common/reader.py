"""Batches of a rank's share of Parquet files, which are read as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from horovod.data.read_ahead import ReadAhead

from . import parquet
from .arrow import Batch, Column, empty, rows_of, to_numpy
from .shuffle import shuffled

CHUNK_BYTES = 2 << 20  # that are decoded at a time
BUFFER_BYTES = 64 << 20  # from which rows are picked at random
READ_AHEAD = 4  # batches


class Batches:
    """One rank's share of the rows, in batches. ``len()`` is the number of batches in an epoch.

    The rows are in row groups, in the order of the files' names. Each rank has a part of equal size of that
    order, which may end within a row group. With ``shuffle`` the row groups are in another order in each
    epoch, so the share of a rank is another, too, and its rows come out of a buffer at random. The same seed
    gives the same batches.

    Only the buffer, ``read_ahead`` batches and what is decoded are in memory. An array that need not be put
    together is in the memory of the decoded rows. A batch belongs to the program, which may change it.

    Args:
        path: a folder of Parquet files, or one of them.
        columns: those to read.
        batch_size: rows of a batch. The last one of an epoch may have fewer.
        filesystem: one of fsspec; by default that of the path.
        rank, size: whose share it is, of how many.
        shuffle: whether rows come in random order.
        seed: of this order; the same on all ranks.
        transform: changes each batch, in the thread that reads ahead.
        read_ahead: so many batches are read ahead of the program, in a thread; 0: none.
        equal: with "pad", the shares are equal to the row: if the rows cannot be shared out, some ranks read
            one row that another rank has, too. With "join", each row is read once in each epoch, so ranks may
            differ by a batch, and end with ``hvd.join()``.
        buffer_rows: so many rows are picked from at random; by default as many as fit into 64 MiB.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: a file is none of Parquet; in an epoch, a null, or a vector of another length.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[Column],
        batch_size: int,
        *,
        filesystem: Any = None,
        rank: int = 0,
        size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        transform: Callable[[Batch], Batch] | None = None,
        read_ahead: int = READ_AHEAD,
        equal: Literal["pad", "join"] = "pad",
        buffer_rows: int | None = None,
    ) -> None:
        if batch_size < 1 or not 0 <= rank < size or equal not in ("pad", "join"):
            raise ValueError(f"no batches for {batch_size=}, {rank=} of {size=}, {equal=}")
        self._columns = list(columns)
        self._groups = parquet.row_groups(parquet.files_at(path, filesystem))
        self._batch_size = batch_size
        self._rank, self._size = rank, size
        self._shuffle, self._seed = shuffle, seed
        self._transform = transform
        self._read_ahead = read_ahead
        self._span = span([group.rows for group in self._groups], rank, size, equal == "pad")
        row = self._bytes_of_row()
        self._buffer_rows = buffer_rows or max(BUFFER_BYTES // row, 1)
        self._chunk_rows = batch_size * max(CHUNK_BYTES // (row * batch_size), 1)  # of whole batches

    def __len__(self) -> int:
        return -(-self.rows // self._batch_size)

    @property
    def rows(self) -> int:
        """That this rank reads in an epoch."""
        return self._span[1] - self._span[0]

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """The batches of an epoch: arrays of shape (rows, *column.shape) by the names of the columns."""
        read = partial(self._read, number)
        if self._read_ahead <= 0:
            yield from read()
            return
        ahead = ReadAhead(read, self._read_ahead)
        try:
            yield from ahead
        finally:
            ahead.close()

    def _read(self, number: int) -> Iterator[Batch]:
        chunks = self._chunks(number)
        if self._shuffle:
            random = np.random.default_rng((self._seed, number, self._rank))
            chunks = shuffled(chunks, min(self._buffer_rows, self.rows), random)
        for batch in rebatched(chunks, self._batch_size):
            yield batch if self._transform is None else self._transform(batch)

    def _chunks(self, number: int) -> Iterator[Batch]:
        """The rows of this rank, as they are decoded."""
        groups = self._groups
        if self._shuffle:
            order = np.random.default_rng((self._seed, number)).permutation(len(groups))
            groups = [groups[index] for index in order]
        names = [column.name for column in self._columns]
        for index, start, stop in slices([group.rows for group in groups], *self._span):
            for rows in groups[index].read(start, stop, names, self._chunk_rows):
                yield {column.name: to_numpy(rows.column(column.name), column) for column in self._columns}

    def _bytes_of_row(self) -> int:
        """Of the columns; that of bytes and strings as the files say."""
        size: float = sum(column.bytes_of_row for column in self._columns)
        rows = sum(group.rows for group in self._groups)
        for column in self._columns if rows else ():
            if column.dtype == "object":
                found = parquet.leaves(self._groups, column.name)
                size += sum(leaf.total_uncompressed_size for _, leaf in found) / rows
        return max(int(size), 1)


def span(rows: Sequence[int], rank: int, size: int, pad: bool) -> tuple[int, int]:
    """Which rows are a rank's, of all in order. Padded, the last of them may be the next rank's first."""
    total = sum(rows)
    first = rank * total // size
    return first, first + -(-total // size) if pad else (rank + 1) * total // size


def slices(rows: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The rows from first to last as parts of row groups of so many rows: index, start, stop."""
    offset = 0
    for index, count in enumerate(rows):
        start, stop = max(first - offset, 0), min(last - offset, count)
        if start < stop:
            yield index, start, stop
        offset += count


def rebatched(chunks: Iterable[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of so many, in the memory of a chunk where a batch lies within it."""
    parts: list[Batch] = []
    missing = size
    for chunk in chunks:
        rows, start = rows_of(chunk), 0
        while start < rows:
            stop = min(start + missing, rows)
            parts.append({name: values[start:stop] for name, values in chunk.items()})
            missing -= stop - start
            start = stop
            if not missing:
                yield _joined(parts)
                parts, missing = [], size
    if parts:
        yield _joined(parts)


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    rows = sum(map(rows_of, parts))
    joined = {name: empty((rows, *values.shape[1:]), values.dtype) for name, values in parts[0].items()}
    return {name: np.concatenate([part[name] for part in parts], out=out) for name, out in joined.items()}
