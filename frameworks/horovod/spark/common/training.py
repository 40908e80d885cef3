"""What each rank of an estimator does, whatever the framework, from what it is told to what it returns."""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from horovod.common import basics as hvd

from .arrow import Batch, rows_of
from .dataset import Dataset
from .reader import Batches

Epoch = Callable[[int], Iterator[Batch]]


@dataclass(frozen=True)
class Plan:
    """A training, as each rank is told of it. ``values`` are the estimator's params, pickled together, so
    that the optimizer stays that of the model; ``checkpoint`` is what an earlier run has left.
    """

    dataset: Dataset
    store: Any
    run_id: str
    values: bytes
    checkpoint: bytes | None = None

    def params(self) -> dict[str, Any]:
        """The params by name."""
        found: dict[str, Any] = cloudpickle.loads(self.values)
        return found


def train(kind: type[Training], plan: Plan) -> bytes | None:
    """Trains on this rank. Returns on rank 0 what the driver makes the trained model of."""
    training = kind(plan)
    with tempfile.TemporaryDirectory() as folder:
        return training.run(folder)


class Training:
    """The training of one rank. A framework says how a model is made ready, goes on and is trained."""

    history: Any
    done = 0
    """Epochs that are trained."""
    kept: bytes | None = None
    """The last checkpoint, on rank 0."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        hvd.init()
        self.params = self.unpacked(plan.params())
        self.share = Share(plan, self.params, hvd.rank(), hvd.size())

    def run(self, folder: str) -> bytes | None:
        """Trains the epochs that are left. ``folder`` is empty, and removed afterwards."""
        self.folder, self.history = folder, []
        self.prepare()
        if self.plan.checkpoint is not None:
            try:
                self.resume(self.plan.checkpoint)
            except (KeyError, RuntimeError, ValueError) as error:
                raise ValueError(
                    f"the run {self.plan.run_id!r} has a checkpoint of another model or optimizer: choose "
                    "another run_id"
                ) from error
        with self.share:
            self.fit(self.epochs())
            return self.result() if hvd.rank() == 0 else None

    def epochs(self) -> range:
        """Those to train: what is missing of ``epochs``, or so many more."""
        asked = self.params["epochs"]
        return range(self.done, asked if self.done < asked else self.done + asked)

    def end_epoch(self, epoch: int, loss: float) -> None:
        """Keeps a checkpoint in the store, for a run of the same ``run_id``: none whose loss is NaN, from
        which such a run could not go on, as it can from that before it.

        Raises:
            ValueError: the loss is NaN, and so are values of this rank's rows.
        """
        if math.isnan(loss):
            self._refuse_nan(epoch)
        self.done = epoch + 1
        if hvd.rank() == 0:
            self.kept = self.checkpoint()
            path = self.plan.store.get_checkpoint_path(self.plan.run_id)
            if path is not None and not math.isnan(loss):
                self.plan.store.write(path, self.kept)

    def _refuse_nan(self, epoch: int) -> None:
        params = self.params
        names = [*params["feature_cols"], *params["label_cols"], *filter(None, [params["sample_weight_col"]])]
        for batch in self.share.train(epoch):
            for name in names:
                if np.isnan(numeric(batch, name)).any():
                    raise ValueError(
                        f"the loss of epoch {epoch} is NaN, and so are values of column {name!r}. Fill or "
                        "drop them: df.na.fill, df.na.drop"
                    )

    def unpacked(self, values: dict[str, Any]) -> dict[str, Any]:
        """The params, of those that were pickled."""
        return values

    def prepare(self) -> None:
        """Sets seed and device, and makes the model ready."""
        raise NotImplementedError

    def resume(self, checkpoint: bytes) -> None:
        """Takes over what a run has left: model, optimizer, ``history`` and ``done``.

        Raises:
            KeyError, RuntimeError, ValueError: it is that of another model.
        """
        raise NotImplementedError

    def fit(self, epochs: range) -> None:
        """Trains, validates, and calls ``end_epoch`` after each epoch on each rank."""
        raise NotImplementedError

    def checkpoint(self) -> bytes:
        """What ``resume`` takes; it is called on rank 0."""
        raise NotImplementedError

    def result(self) -> bytes | None:
        """What the driver gets; it is called on rank 0."""
        return self.kept

    def arrays(self, batch: Batch, names: str) -> list[np.ndarray]:
        """The columns of a batch that a param names."""
        return [numeric(batch, name) for name in self.params[names]]

    def weights(self, batch: Batch) -> np.ndarray | None:
        """Those of its rows, where they have any."""
        name = self.params["sample_weight_col"]
        return numeric(batch, name) if name else None


class Share:
    """The data of one rank, in steps of which all ranks have the same number. Those of a ``data_module`` are
    there in a ``with`` statement alone.
    """

    def __init__(self, plan: Plan, params: Mapping[str, Any], rank: int, size: int) -> None:
        self._plan, self._params, self._rank, self._size = plan, params, rank, size
        dataset = plan.dataset
        self._columns = list(dataset.columns.values())
        self._rows = params["batch_size"]
        self._val_rows = params["val_batch_size"] or self._rows
        rows = _ceil(dataset.train_rows, size)
        if self._rows > 1:  # see _without_single_rows
            rows = max(rows - 1, 1)
        self.steps = params["train_steps_per_epoch"] or _ceil(rows, self._rows)
        has_val = params["validation"] is not None and dataset.val_path is not None and dataset.val_rows > 0
        asked = params["validation_steps_per_epoch"]
        self.val_steps = (asked or _ceil(dataset.val_rows, size * self._val_rows)) if has_val else 0
        self._opened = contextlib.ExitStack()
        if not params["data_module"]:
            self._train, self._val = self._of_batches()

    def __enter__(self) -> Share:
        if self._params["data_module"]:
            with contextlib.ExitStack() as stack:  # closes it where it cannot give its data
                self._train, self._val = self._of_module(stack)
                self._opened = stack.pop_all()
        return self

    def __exit__(self, *told: Any) -> None:
        self._opened.__exit__(*told)  # which cannot hide that the training has failed

    def train(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        own = self._train
        return _exactly(
            self.steps, (lambda n: _without_single_rows(own(n))) if self._rows > 1 else own, epoch
        )

    def validate(self) -> Iterator[Batch]:
        """Those of validation."""
        return _exactly(self.val_steps, self._val, 0)

    def _of_batches(self) -> tuple[Epoch, Epoch]:
        dataset = self._plan.dataset
        train = self._batches(dataset.train_path, self._rows, self._is_shuffled())
        if not self.val_steps or dataset.val_path is None:
            return train, lambda _: iter(())
        return train, self._batches(dataset.val_path, self._val_rows, False)

    def _batches(self, path: str, rows: int, shuffle: bool) -> Epoch:
        return Batches(
            path,
            self._columns,
            rows,
            filesystem=self._plan.store.filesystem,
            rank=self._rank,
            size=self._size,
            shuffle=shuffle,
            seed=self._params["random_seed"] or 0,
            transform=self._transformation(),
        ).epoch

    def _of_module(self, stack: contextlib.ExitStack) -> tuple[Epoch, Epoch]:
        """Of the class that the user gives in place of the reader."""
        dataset, params = self._plan.dataset, self._params
        module = params["data_module"](
            train_dir=dataset.train_path,
            val_dir=dataset.val_path,
            num_train_epochs=params["epochs"],
            has_val=self.val_steps > 0,
            train_batch_size=self._rows,
            val_batch_size=self._val_rows,
            shuffle=self._is_shuffled(),
            transform_fn=self._transformation(),
            inmemory_cache_all=params["inmemory_cache_all"],
            cur_shard=self._rank,
            shard_count=self._size,
            schema_fields=self._columns,
            storage_options=getattr(self._plan.store, "storage_options", None),
            steps_per_epoch_train=self.steps,
            steps_per_epoch_val=self.val_steps,
            verbose=params["verbose"] > 0,
            seed=params["random_seed"] or 0,
        )
        opened = stack.enter_context(module)
        train, val = opened.train_data(), opened.val_data()
        return lambda _: iter(train), lambda _: iter(val)

    def _is_shuffled(self) -> bool:
        return bool(self._params["shuffle"]) and self._params["shuffle_buffer_size"] != 0

    def _transformation(self) -> Callable[[Batch], Batch] | None:
        function = self._params["transformation_fn"]
        return function and _on_arrays(function, self._params["transformation_removed_fields"])


def numeric(batch: Batch, name: str) -> np.ndarray:
    """A column of a batch that a model can take.

    Raises:
        TypeError: it is binary data or text.
        KeyError: there is no such column; the text names those that there are.
    """
    if name not in batch:
        raise KeyError(f"there is no column {name!r} among those of the data: {sorted(batch)}")
    array = np.asarray(batch[name])
    if array.dtype == object:
        raise TypeError(f"column {name!r} holds no numbers: decode it in transformation_fn")
    return array


def as_list(value: Any) -> list[Any]:
    """A list of one, where it is no list; none of None."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _exactly(steps: int, epochs: Epoch, first: int) -> Iterator[Batch]:
    """So many batches: those of an epoch, where they are not enough also those of the next ones."""
    left = steps
    for number in itertools.count(first):
        batches = epochs(number)
        before = left
        for batch in itertools.islice(batches, left):
            yield batch
            left -= 1
        if hasattr(batches, "close"):  # it may read ahead
            batches.close()
        if not left:
            return
        if left == before:
            raise ValueError(f"the data end {left} batches before the end of epoch {first}")


def _without_single_rows(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same rows. A batch of one, which BatchNorm cannot be trained with, goes to that before it."""
    last: Batch | None = None
    for batch in batches:
        if last is not None and rows_of(batch) == 1:
            last = {name: np.concatenate([last[name], batch[name]]) for name in batch}
            continue
        if last is not None:
            yield last
        last = batch
    if last is not None:
        yield last


def _ceil(rows: int, each: int) -> int:
    return -(-rows // each)


def _on_arrays(function: Callable[[Any], Any], removed: list[str] | None) -> Callable[[Batch], Batch]:
    """A function of a pandas.DataFrame as one of arrays."""

    def transform(batch: Batch) -> Batch:
        import pandas

        columns = {name: array if array.ndim == 1 else list(array) for name, array in batch.items()}
        frame = function(pandas.DataFrame(columns))
        if not isinstance(frame, pandas.DataFrame):
            raise TypeError(f"transformation_fn returned a {type(frame).__name__}, and no pandas.DataFrame")
        if frame.empty:
            raise ValueError("transformation_fn left no row of a batch: filter the DataFrame before fit")
        return {name: _array(frame[name]) for name in frame.columns if name not in (removed or ())}

    return transform


def _array(series: Any) -> np.ndarray:
    array = series.to_numpy()
    if array.dtype != object or not len(array) or isinstance(array[0], (bytes, str)):
        return np.asarray(array)
    return np.stack(list(array))
