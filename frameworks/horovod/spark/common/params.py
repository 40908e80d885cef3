"""The params of estimators and of their models: tables, of which the accessors are made."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

Stage = TypeVar("Stage", bound=type)

INT, FLOATS = TypeConverters.toInt, TypeConverters.toListFloat
TEXT, TEXTS = TypeConverters.toString, TypeConverters.toListString
YES_OR_NO = TypeConverters.toBoolean


class Row(NamedTuple):
    """A param. ``accessor``: what stands behind get and set, where it is not the name in camel case."""

    name: str
    doc: str
    default: Any = None
    convert: Callable[[Any], Any] | None = None
    accessor: str = ""

    def accessors(self) -> str:
        return self.accessor or "".join(word.capitalize() for word in self.name.strip("_").split("_"))


_UNUSED = "accepted, and not used"

ESTIMATOR = (
    Row("num_proc", "how many ranks, by default as many as the application runs tasks", convert=INT),
    Row("model", "what is trained"),
    Row("backend", "what starts the ranks, in place of num_proc: it has run() and num_processes()"),
    Row("store", "where data and checkpoints are: Store.create(path)"),
    Row("optimizer", "of the framework; its gradients are averaged over the ranks"),
    Row("loss", "one loss, or one for each label"),
    Row("loss_weights", "a weight for each label, by default equal ones", convert=FLOATS),
    Row("sample_weight_col", "the column with the weight of each row", convert=TEXT),
    Row("metrics", "what is measured beside the loss", []),
    Row("feature_cols", "the columns that the model takes, in this order", convert=TEXTS),
    Row("label_cols", "the columns that its outputs are compared with, in their order", convert=TEXTS),
    Row("label_shapes", "the shape of each label, where it is not that of its column"),
    Row("validation", "the part of the rows to validate with, or the column that says which they are"),
    Row("callbacks", "of the framework", []),
    Row("batch_size", "rows of a batch on each rank", 32, INT),
    Row("val_batch_size", "likewise of validation, by default batch_size", convert=INT),
    Row("epochs", "how often the data are trained with", 1, INT),
    Row("train_steps_per_epoch", "batches of an epoch, by default those of all rows", convert=INT),
    Row("validation_steps_per_epoch", "likewise of validation", convert=INT),
    Row("gradient_compression", "how gradients travel, such as hvd.Compression.fp16"),
    Row("backward_passes_per_step", "batches whose gradients are added up before a step", 1, INT),
    Row("transformation_fn", "called with a pandas.DataFrame of some rows, returns what is trained with"),
    Row("transformation_edit_fields", f"{_UNUSED}: shapes are those that transformation_fn returns"),
    Row("transformation_removed_fields", "columns that transformation_fn's result is without", convert=TEXTS),
    Row("shuffle", "whether each epoch has the rows in another order", True, YES_OR_NO),
    Row(
        "shuffle_buffer_size",
        "deprecated, use shuffle: 0 is False",
        convert=INT,
        accessor="ShufflingBufferSize",
    ),
    Row("data_module", "a class like ParquetDataModule, which makes the batches of a rank"),
    Row("random_seed", "of the framework, and of the order of rows", convert=INT),
    Row("partitions_per_process", "files that the data are written as, for each rank", 10, INT),
    Row("run_id", "names the run; a run that the store has a checkpoint of goes on", convert=TEXT),
    Row("verbose", "0 to say nothing", 1, INT),
    Row("use_gpu", "whether to train on a GPU, where there is one", True, YES_OR_NO),
    Row("train_reader_num_workers", _UNUSED, 2, INT, "TrainReaderNumWorker"),
    Row("val_reader_num_workers", _UNUSED, 2, INT, "ValReaderNumWorker"),
    Row("reader_pool_type", _UNUSED, "thread", TEXT),
    Row("compress_sparse_cols", _UNUSED, False, YES_OR_NO),
    Row("inmemory_cache_all", _UNUSED, False, YES_OR_NO, "InMemoryCacheAll"),
    Row("mp_start_method", _UNUSED, convert=TEXT),
)

MODEL = (
    Row("history", "what was measured in each epoch"),
    Row("model", "what was trained"),
    Row("feature_columns", "the columns that the model takes, in this order"),
    Row("label_columns", "the columns that it was trained to give"),
    Row("outputCols", "the columns that transform adds, by default <label>__output", [], TEXTS, "OutputCols"),
    Row("run_id", "of the run that trained it", convert=TEXT),
    Row("_metadata", "what the labels were in the DataFrame, and what the model makes of a row"),
)


def with_params(*rows: Row) -> Callable[[Stage], Stage]:
    """Gives a class the params of a table, and for each a setter, which returns the object, and a getter."""

    def decorate(cls: Stage) -> Stage:
        for row in rows:
            setattr(cls, row.name, Param(Params._dummy(), row.name, row.doc, row.convert))
            for name, method in _methods(row):
                if name not in vars(cls):
                    setattr(cls, name, method)
        known: dict[str, Row] = getattr(cls, "_rows", {})
        setattr(cls, "_rows", {**known, **{row.name: row for row in rows}})  # noqa: B010
        return cls

    return decorate


def _methods(row: Row) -> Iterator[tuple[str, Callable[..., Any]]]:
    def get(self: Any) -> Any:
        return self.getOrDefault(row.name)

    def set_(self: Any, value: Any) -> Any:
        return self.setParams(**{row.name: value})

    for method, verb, doc in ((get, "get", "Returns"), (set_, "set", "Sets")):
        method.__name__ = f"{verb}{row.accessors()}"
        method.__doc__ = f"{doc} ``{row.name}``: {row.doc}."
        yield method.__name__, method


class HasParams(Params):
    """The start of a stage: its defaults, and what is given by name."""

    _rows: dict[str, Row]

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._setDefault(**{row.name: copy.copy(row.default) for row in self._rows.values()})
        self.setParams(**values)

    def setParams(self, **values: Any) -> Any:
        """Sets params by name; None is the default.

        Raises:
            TypeError: a name that there is not, or a value of another type.
        """
        for name, value in values.items():
            if not self.hasParam(name):
                raise TypeError(f"{type(self).__name__} has no param {name!r}{_similar(name, self._rows)}")
            if name == "shuffle_buffer_size" and value is not None:
                warnings.warn(
                    "shuffle_buffer_size is deprecated, use shuffle", DeprecationWarning, stacklevel=3
                )
            if value is None:
                self.clear(getattr(self, name))
            else:
                self._set(**{name: value})
        return self


def _similar(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(names), n=1)
    return f": do you mean {found[0]!r}?" if found else ""
