"""Parquet files in a folder of any file system, and what their footers say."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow.dataset
import pyarrow.parquet
from fsspec.core import url_to_fs

_READ_BYTES = 1 << 20  # of a column at a time, from local files: a row group need not fit into memory
_FOOTERS_AT_ONCE = 16


class RowGroup(NamedTuple):
    """A row group of a file: so many ``rows`` that are decoded together."""

    file: Any  # pyarrow's fragment, with its footer
    number: int
    rows: int

    def read(self, start: int, stop: int, names: list[str], rows: int) -> Iterator[Any]:
        """Rows ``start`` to ``stop`` as record batches of at most so many ``rows``, with the columns of these
        names.
        """
        fragment, position = self.file, 0
        opened = pyarrow.parquet.ParquetFile(
            fragment.path,
            filesystem=fragment.filesystem,
            metadata=fragment.metadata,
            buffer_size=_READ_BYTES,
            pre_buffer=fragment.filesystem.type_name != "local",  # one request, not one for each page
        )
        with opened:
            for batch in opened.iter_batches(rows, [self.number], names, use_threads=len(names) > 1):
                begin, end = max(start - position, 0), min(stop - position, batch.num_rows)
                position += batch.num_rows
                if begin < end:
                    yield batch.slice(begin, end - begin)
                if position >= stop:
                    return


def opened(path: str, filesystem: Any = None) -> Any:
    """The files below a path as a ``pyarrow.dataset.Dataset``; ``filesystem`` is one of fsspec, by default
    that of the path.

    Raises:
        FileNotFoundError: there is nothing at the path.
    """
    if filesystem is None:
        filesystem, path = url_to_fs(path)
    else:
        path = filesystem._strip_protocol(path)
    try:
        return pyarrow.dataset.dataset(path, filesystem=filesystem, format="parquet")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no {path}, as {socket.gethostname()} sees it. The driver and all executors have to "
            "see the folder of a store"
        ) from error


def files_at(path: str, filesystem: Any = None) -> list[Any]:
    """pyarrow's fragments, one a file, with their footers, in the order of their names.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: a file is none of Parquet.
    """
    files = sorted(opened(path, filesystem).get_fragments(), key=lambda file: file.path)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        list(pool.map(lambda file: file.ensure_complete_metadata(), files))
    return files


def leaves(groups: list[RowGroup], path: str) -> Iterator[tuple[RowGroup, Any]]:
    """What the footers say of the column at a path, and of all below it. A name may have dots."""
    names = set(groups[0].file.physical_schema.names) if groups else set()
    for group in groups:
        footer = group.file.metadata.row_group(group.number)
        for leaf in map(footer.column, range(footer.num_columns)):
            found = leaf.path_in_schema
            if found == path or (found.startswith(f"{path}.") and found not in names):
                yield group, leaf


def row_groups(files: list[Any]) -> list[RowGroup]:
    """Those of all files that have rows."""
    return [
        RowGroup(file, number, rows)
        for file in files
        for number in range(file.metadata.num_row_groups)
        if (rows := file.metadata.row_group(number).num_rows)
    ]
