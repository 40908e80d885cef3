"""What each rank of a KerasEstimator runs."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from horovod.common import basics as hvd
from horovod.common.collective.compression import NoneCompressor
from horovod.spark.common.training import Batch, Plan, Share, numeric

from .packing import backend_of, package_of, unpacked


def train(plan: Plan) -> bytes | None:
    """Trains, and returns the checkpoint of the last epoch on rank 0."""
    params = unpacked(plan.params())
    package = package_of(params["model"])
    keras = importlib.import_module(package)
    hvd.init()
    choose_gpu(package, hvd.local_rank() if params["use_gpu"] else None)
    if params["random_seed"] is not None:
        keras.utils.set_random_seed(params["random_seed"])
    share = Share(plan, params, hvd.rank(), hvd.size())
    adapter = _adapter(package, keras)
    params["optimizer"] = keras.optimizers.get(params["optimizer"])
    model = compiled(params, _distributed(params, adapter))
    state: dict[str, Any] = {"history": {}, "done": 0}
    if plan.checkpoint is not None:
        state = resumed(plan.checkpoint, model, params["run_id"], hvd.size())
    return Training(keras, adapter, params, share, model, state).run()


class Training:
    """The training of one rank."""

    def __init__(
        self,
        keras: Any,
        adapter: Any,
        params: Mapping[str, Any],
        share: Share,
        model: Any,
        state: dict[str, Any],
    ) -> None:
        self._keras, self._adapter, self._params = keras, adapter, params
        self._share, self._model = share, model
        self._history: dict[str, list[float]] = state["history"]
        self._done: int = state["done"]
        self._sample: Any = None
        self._checkpoint: bytes | None = None

    def run(self) -> bytes | None:
        """Trains the epochs that are left."""
        share, is_first = self._share, hvd.rank() == 0
        epochs = share.epochs(self._done)
        if not self._model.built:
            self._model(self._inputs(next(share.train(epochs.start))))
        with tempfile.TemporaryDirectory() as folder:
            best = self._best(folder) if is_first else None
            self._model.fit(
                self._data(self._of_epochs(epochs.start)),
                initial_epoch=epochs.start,
                epochs=epochs.stop,
                steps_per_epoch=share.steps,
                validation_data=self._data(self._of_validation) if share.val_steps else None,
                validation_steps=share.val_steps or None,
                shuffle=False,  # the batches are
                callbacks=[*self._callbacks(), *([best] if best else []), self._recorder()],
                verbose={0: 0, 1: 2}.get(self._params["verbose"], 1) if is_first else 0,
            )
            if best is not None and os.path.exists(best.filepath):
                self._model.load_weights(best.filepath)
                self._keep()
        return self._checkpoint

    def _of_epochs(self, start: int) -> Callable[[], Iterator[Any]]:
        def batches() -> Iterator[Any]:
            for epoch in itertools.count(start):
                yield from map(self._prepared, self._share.train(epoch))

        return batches

    def _of_validation(self) -> Iterator[Any]:
        while True:
            yield from map(self._prepared, self._share.validate())

    def _prepared(self, batch: Batch) -> tuple[Any, ...]:
        params = self._params
        labels = [numeric(batch, name) for name in params["label_cols"]]
        shapes = params["label_shapes"] or _shapes(self._model, "outputs", labels)
        fitted = _one_or_all([_reshaped(*pair) for pair in zip(labels, shapes, strict=True)])
        weights = params["sample_weight_col"]
        pair = self._inputs(batch), fitted
        return (*pair, numeric(batch, weights)) if weights else pair

    def _inputs(self, batch: Batch) -> Any:
        return as_input(self._model, [numeric(batch, name) for name in self._params["feature_cols"]])

    def _data(self, batches: Callable[[], Iterator[Any]]) -> Any:
        """Without end, as ``fit`` takes it."""
        first = next(batches())
        self._sample = first[0]
        if backend_of(self._keras.__name__) != "tensorflow":
            return batches()
        import tensorflow as tf

        spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), first
        )
        return tf.data.Dataset.from_generator(batches, output_signature=spec)

    def _callbacks(self) -> list[Any]:
        return [
            self._adapter.BroadcastGlobalVariablesCallback(0),
            self._adapter.MetricAverageCallback(),
            *(self._params["callbacks"] or ()),
        ]

    def _best(self, folder: str) -> Any:
        """The user's ModelCheckpoint, which saves weights in ``folder``."""
        callback = self._params["checkpoint_callback"]
        if callback is not None:
            callback.filepath = os.path.join(folder, "best.weights.h5")
            callback.save_weights_only = True
        return callback

    def _recorder(self) -> Any:
        """A callback that keeps the history, and a checkpoint of each epoch."""
        training = self

        base: Any = self._keras.callbacks.Callback

        class Recorder(base):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                training._record(epoch, logs or {})

        return Recorder()

    def _record(self, epoch: int, logs: Mapping[str, Any]) -> None:
        for name, value in logs.items():
            self._history.setdefault(name, []).append(float(value))
        self._done = epoch + 1
        if hvd.rank() == 0:
            self._share.save(self._keep())

    def _keep(self) -> bytes:
        outputs = self._model(self._sample, training=False)
        shapes = [list(output.shape[1:]) for output in as_list(outputs)]
        inputs = [list(array.shape[1:]) for array in as_list(self._sample)]
        state = {"history": self._history, "done": self._done, "shapes": shapes, "inputs": inputs}
        self._checkpoint = as_arrays(self._model, state, hvd.size())
        return self._checkpoint


def compiled(params: Mapping[str, Any], optimizer: Any) -> Any:
    """The model of the params, compiled with this optimizer."""
    model = params["model"]
    model.compile(
        optimizer=optimizer,
        loss=params["loss"],
        loss_weights=params["loss_weights"],
        metrics=params["metrics"] or None,
    )
    return model


def as_arrays(model: Any, state: Mapping[str, Any], size: int) -> bytes:
    """A checkpoint: weights, the state of the optimizer with the learning rate of one rank, and what JSON can
    have.
    """
    rate = _rate(model.optimizer)
    text = json.dumps({**state, "rate": None if rate is None else rate / size})
    weights, variables = model.get_weights(), _variables(model)
    arrays = {f"weight_{number}": value for number, value in enumerate(weights)}
    arrays |= {f"optimizer_{number}": np.asarray(value) for number, value in enumerate(variables)}
    file = io.BytesIO()
    np.savez(file, state=np.array(text), **arrays)
    return file.getvalue()


def load_arrays(checkpoint: bytes, model: Any, size: int = 1) -> dict[str, Any]:
    """Gives a compiled model what ``as_arrays`` has made, and returns the state."""
    with np.load(io.BytesIO(checkpoint), allow_pickle=False) as arrays:
        state: dict[str, Any] = json.loads(str(arrays["state"]))
        if not model.built:
            model(_one_or_all([np.zeros((1, *shape), np.float32) for shape in state["inputs"]]))
        count = sum(name.startswith("weight_") for name in arrays.files)
        model.set_weights([arrays[f"weight_{number}"] for number in range(count)])
        model.optimizer.build(model.trainable_variables)
        for number, variable in enumerate(_variables(model)):
            variable.assign(arrays[f"optimizer_{number}"])
    if state["rate"] is not None:
        model.optimizer.learning_rate = state["rate"] * size
    return state


def resumed(checkpoint: bytes, model: Any, run_id: str, size: int) -> dict[str, Any]:
    """Likewise what an earlier run has left.

    Raises:
        ValueError: it is that of another model.
    """
    try:
        return load_arrays(checkpoint, model, size)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"the run {run_id!r} has a checkpoint of another model or optimizer: choose another run_id"
        ) from error


def as_input(model: Any, features: Sequence[np.ndarray]) -> Any:
    """Columns with the shapes of the model's inputs: an array, or a tuple of several."""
    shapes = _shapes(model, "inputs", features)
    return _one_or_all([_reshaped(*pair) for pair in zip(features, shapes, strict=True)])


def _adapter(package: str, keras: Any) -> Any:
    """Optimizers and callbacks of the package."""
    if package == "keras":
        from horovod.keras.backend import adapter

        return adapter
    from horovod._keras.adapter import KerasAdapter
    from horovod.tensorflow.keras.backend import backend

    return KerasAdapter(keras, backend, "horovod.tensorflow.keras")


def _distributed(params: Mapping[str, Any], adapter: Any) -> Any:
    optimizer = params["optimizer"]
    rate = _rate(optimizer)
    if rate is not None:
        optimizer.learning_rate = rate * hvd.size()
    return adapter.DistributedOptimizer(
        optimizer,
        compression=params["gradient_compression"] or NoneCompressor,
        backward_passes_per_step=params["backward_passes_per_step"],
    )


def _rate(optimizer: Any) -> float | None:
    """The learning rate; None of a schedule."""
    rate = optimizer.get_config().get("learning_rate")
    return None if rate is None or isinstance(rate, dict) else float(np.asarray(optimizer.learning_rate))


def _variables(model: Any) -> list[Any]:
    return list(model.optimizer.variables)


def _shapes(model: Any, name: str, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Those of the model's inputs or outputs, -1 for what is not fixed; none of a model that does not say."""
    found = getattr(model, name, None)
    if not found or len(found) != len(arrays):
        return [None] * len(arrays)
    return [[size or -1 for size in each.shape] for each in found]


def _reshaped(array: np.ndarray, shape: Sequence[int] | None) -> np.ndarray:
    """With this shape, if it has as many numbers for each row."""
    if shape is None or list(shape).count(-1) > 1 or math.prod(shape[1:]) != math.prod(array.shape[1:]):
        return array
    return array.reshape(len(array), *shape[1:])


def _one_or_all(arrays: list[np.ndarray]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def as_list(value: Any) -> list[Any]:
    """A list of one, where it is none."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def choose_gpu(package: str, local_rank: int | None) -> None:
    """The GPU of this rank, or none, for TensorFlow; other frameworks have their own settings."""
    if backend_of(package) != "tensorflow":
        return
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    if found:
        chosen = [] if local_rank is None else [found[local_rank % len(found)]]
        tf.config.set_visible_devices(chosen, "GPU")
