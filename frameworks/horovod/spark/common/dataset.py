"""Training data: Spark writes a DataFrame as Parquet, whose footers tell what the columns are."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions

from . import parquet
from .arrow import Column, element_type, is_list, is_vector

ROW_GROUP_BYTES = 16 << 20
"""Of the files that are written: small enough that ranks mix several in memory, and share them evenly."""


@dataclass(frozen=True)
class Dataset:
    """Rows to train with, and those to validate with if there are any, which have the same columns."""

    train_path: str
    val_path: str | None
    columns: dict[str, Column]
    train_rows: int
    val_rows: int


def write(
    df: Any,
    store: Any,
    columns: Sequence[str],
    *,
    validation: float | str | None = None,
    partitions: int | None = None,
    seed: int = 0,
    idx: object = None,
) -> Dataset:
    """Writes the columns of a DataFrame to a store.

    Args:
        df: a DataFrame. Its columns are numbers, booleans, vectors, arrays of numbers, bytes or strings.
            Vectors and arrays of a column are of one length.
        store: a ``Store``.
        columns: the names of those that are needed.
        validation: None or 0, the fraction of the rows to validate with, picked at random, or the name of a
            column that is true or above zero in these rows.
        partitions: into so many files; None: as many as the DataFrame has partitions.
        seed: of the random choice.
        idx: the name of the data in the store; by default a new one. Data of the same name are replaced.

    Raises:
        TypeError: a column is of another type, or ``df`` is.
        ValueError: there are no rows, a null, or vectors or arrays of several lengths.
        OSError: the store cannot be written to; the text has the reason that Java gives.

    Whatever fails, nothing is left in the store.
    """
    if not hasattr(df, "selectExpr"):
        raise TypeError(f"a {type(df).__name__} is no DataFrame of Spark: spark.createDataFrame makes one")
    columns = list(dict.fromkeys(columns))
    idx = uuid.uuid4().hex[:12] if idx is None else idx
    train_path, val_path = store.get_train_data_path(idx), store.get_val_data_path(idx)
    parts = _split(df, columns, validation, seed)
    found = Dataset(train_path, val_path if len(parts) > 1 else None, {}, 0, 0)
    try:
        for part, path in zip(parts, (train_path, val_path), strict=False):
            part = part if partitions is None else part.repartition(partitions)
            if isinstance(validation, float):  # the split has sorted the rows
                part = part.sortWithinPartitions(functions.rand(seed))
            writer = part.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES)
            try:
                writer.parquet(store.get_full_path(path))
            except Py4JJavaError as error:  # a page of Java
                raise OSError(f"Spark cannot write the DataFrame to {path}: {_cause(error)}") from error
        return _described(found, store, columns)
    except BaseException:
        remove(store, found)
        raise


def described(store: Any, columns: Sequence[str] | None = None, idx: object = None) -> Dataset:
    """The Parquet files that are in a store.

    Args:
        store: a ``Store``.
        columns: the names of those that are needed; by default all.
        idx: the name of the data in the store.

    Raises:
        TypeError, ValueError: as for ``write``.
        FileNotFoundError: there are no training data.
    """
    val_path = store.get_val_data_path(idx)
    val_path = val_path if store.is_parquet_dataset(val_path) else None
    return _described(Dataset(store.get_train_data_path(idx), val_path, {}, 0, 0), store, columns)


def remove(store: Any, dataset: Dataset) -> None:
    """Deletes the files of a dataset."""
    for path in filter(None, (dataset.train_path, dataset.val_path)):
        store.delete(path)


def _cause(error: Exception) -> str:
    """What Java names last, and so first of all went wrong."""
    return str((re.findall(r"^(?:Caused by)?: (.*)", str(error), re.MULTILINE) or [error])[-1])


def _split(df: Any, columns: list[str], validation: float | str | None, seed: int) -> list[Any]:
    """The rows to train with, and those to validate with."""
    needed = [*columns, validation] if isinstance(validation, str) else columns
    if missing := [name for name in needed if name not in df.columns]:
        raise ValueError(f"the DataFrame has no column {missing[0]!r}, but {', '.join(df.columns)}")
    column = {name: df["`" + name.replace("`", "``") + "`"] for name in needed}
    chosen = [column[name] for name in columns]
    if not validation:
        return [df.select(chosen)]
    if isinstance(validation, str):
        marked = functions.coalesce(column[validation].cast("double"), functions.lit(0.0)) > 0
        return [df.where(~marked).select(chosen), df.where(marked).select(chosen)]
    if not isinstance(validation, (int, float)) or not 0 < validation < 1:
        raise ValueError(f"validation={validation} is no fraction between 0 and 1, nor the name of a column")
    return list(df.select(chosen).randomSplit([1 - validation, validation], seed))


def _described(paths: Dataset, store: Any, names: Sequence[str] | None) -> Dataset:
    train = parquet.files_at(paths.train_path, store.filesystem)
    val = parquet.files_at(paths.val_path, store.filesystem) if paths.val_path else []
    groups, val_groups = parquet.row_groups(train), parquet.row_groups(val)
    rows, val_rows = (sum(group.rows for group in each) for each in (groups, val_groups))
    if not rows:
        raise ValueError(
            f"there are no rows to train with in {paths.train_path}. If the DataFrame has some, the driver "
            "and the executors see other folders by this name: choose a store that all of them see"
        )
    columns = columns_of(paths.train_path, groups + val_groups, names)
    return Dataset(paths.train_path, paths.val_path, columns, rows, val_rows)


def columns_of(
    path: str, groups: list[parquet.RowGroup], names: Sequence[str] | None = None
) -> dict[str, Column]:
    """What the footers of row groups say of the columns of these names, by default all.

    Raises:
        TypeError, ValueError: as for ``write``.
    """
    schema = groups[0].file.physical_schema
    names = schema.names if names is None else names
    if missing := [name for name in names if name not in schema.names]:
        raise ValueError(f"{path} has no column {missing[0]!r}, but {', '.join(schema.names)}")
    return {name: _column(schema.field(name), groups) for name in names}


def _column(field: Any, groups: list[parquet.RowGroup]) -> Column:
    kind, name = field.type, field.name
    if is_vector(kind):
        return _vector_column(name, groups)
    dtype = element_type(kind.value_type if is_list(kind) else kind, name)
    leaves = list(parquet.leaves(groups, name))
    _refuse_nulls(name, leaves)
    if is_list(kind):
        counts = {leaf.num_values / group.rows for group, leaf in leaves}
        return Column(name, dtype, (_only(name, counts),), "array")
    is_bytes = dtype == "object" and "string" not in str(kind)
    return Column(name, dtype, (), "binary" if is_bytes else "scalar")


def _vector_column(name: str, groups: list[parquet.RowGroup]) -> Column:
    """By the statistics of the parts: "type" is 0 in sparse and 1 in dense vectors, "size" is null in dense
    ones.
    """
    types = list(parquet.leaves(groups, f"{name}.type"))
    _refuse_nulls(name, types)
    found = {value for _, leaf in types for value in _range(leaf)}
    sizes = {float(value) for _, leaf in parquet.leaves(groups, f"{name}.size") for value in _range(leaf)}
    if found == {1}:
        sizes = {leaf.num_values / group.rows for group, leaf in parquet.leaves(groups, f"{name}.values")}
    if not sizes:
        raise ValueError(f"the files say nothing of the vectors in column {name!r}: write them with Spark")
    kind = "mixed_vector" if len(found) != 1 else "dense_vector" if found == {1} else "sparse_vector"
    return Column(name, "float64", (_only(name, sizes),), kind)


def _range(leaf: Any) -> tuple[int, ...]:
    """The smallest and the largest value, if the file tells them."""
    known = leaf.statistics
    return (known.min, known.max) if known is not None and known.has_min_max else ()


def _refuse_nulls(name: str, leaves: list[tuple[parquet.RowGroup, Any]]) -> None:
    known = [leaf.statistics for _, leaf in leaves]
    nulls = sum(each.null_count for each in known if each is not None and each.has_null_count)
    if nulls:
        raise ValueError(
            f"column {name!r} has {nulls} nulls, or empty arrays. Fill or drop them: df.na.fill, df.na.drop"
        )


def _only(name: str, lengths: set[float]) -> int:
    """The length of all rows, where there is one."""
    length = int(max(lengths))
    if lengths != {length}:
        raise ValueError(
            f"column {name!r} has vectors or arrays of different lengths. All have to be of the same length: "
            "pad or cut them"
        )
    return length
