"""What each rank of a KerasEstimator runs."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from horovod.common import basics as hvd
from horovod.common.collective.compression import NoneCompressor
from horovod.spark.common import training as common
from horovod.spark.common.arrow import Batch
from horovod.spark.common.training import as_list

from .packing import backend_of, package_of, unpacked


class Training(common.Training):
    """The training of one rank."""

    def unpacked(self, values: dict[str, Any]) -> dict[str, Any]:
        return of_rank(values, hvd.rank())

    def prepare(self) -> None:
        params, package = self.params, package_of(self.params["model"])
        self.keras = keras = importlib.import_module(package)
        choose_gpu(package, hvd.local_rank() if params["use_gpu"] else None)
        self.adapter = _adapter(package, keras)
        params["optimizer"] = keras.optimizers.get(params["optimizer"])
        self.model = compiled(params, _distributed(params, self.adapter))
        self.history: dict[str, list[float]] = {}
        self.sample: Any = None
        """Inputs of a batch."""

    def resume(self, checkpoint: bytes) -> None:
        state = load_arrays(checkpoint, self.model, hvd.size())
        self.history, self.done = state["history"], state["done"]

    def fit(self, epochs: range) -> None:
        share, is_first = self.share, hvd.rank() == 0
        if not self.model.built:
            self.model(self._inputs(next(share.train(epochs.start))))
        best = self._best() if is_first else None
        self.model.fit(
            self._data(lambda: map(share.train, itertools.count(epochs.start))),
            initial_epoch=epochs.start,
            epochs=epochs.stop,
            steps_per_epoch=share.steps,
            validation_data=self._data(lambda: iter(share.validate, None)) if share.val_steps else None,
            validation_steps=share.val_steps or None,
            shuffle=False,  # the batches are
            callbacks=[
                self.adapter.BroadcastGlobalVariablesCallback(0),
                self.adapter.MetricAverageCallback(),
                *(self.params["callbacks"] or ()),
                *([best] if best else []),
                self._recorder(),
            ],
            verbose={0: 0, 1: 2}.get(self.params["verbose"], 1) if is_first else 0,
        )
        if best is not None and os.path.exists(best.filepath):
            self.model.load_weights(best.filepath)
            self.kept = self.checkpoint()

    def checkpoint(self) -> bytes:
        shapes, inputs = (
            [list(array.shape[1:]) for array in as_list(arrays)]
            for arrays in (self.model(self.sample, training=False), self.sample)
        )
        state = {"history": self.history, "done": self.done, "shapes": shapes, "inputs": inputs}
        return as_arrays(self.model, state, hvd.size())

    def _prepared(self, batch: Batch) -> tuple[Any, ...]:
        labels, weights = self.arrays(batch, "label_cols"), self.weights(batch)
        shapes = self.params["label_shapes"] or _shapes(self.model, "outputs", labels)
        fitted = _one_or_all([_reshaped(*pair) for pair in zip(labels, shapes, strict=True)])
        pair = self._inputs(batch), fitted
        return pair if weights is None else (*pair, weights)

    def _inputs(self, batch: Batch) -> Any:
        return as_input(self.model, self.arrays(batch, "feature_cols"))

    def _data(self, epochs: Callable[[], Iterator[Iterator[Batch]]]) -> Any:
        """Batches without end, as ``fit`` takes them."""

        def batches() -> Iterator[Any]:
            for epoch in epochs():
                yield from map(self._prepared, epoch)

        first = next(batches())
        self.sample = first[0]
        if backend_of(self.keras.__name__) != "tensorflow":
            return batches()
        import tensorflow as tf

        spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), first
        )
        return tf.data.Dataset.from_generator(batches, output_signature=spec)

    def _best(self) -> Any:
        """The user's ModelCheckpoint, which saves weights in the folder."""
        callback = self.params["checkpoint_callback"]
        if callback is not None:
            callback.filepath = os.path.join(self.folder, "best.weights.h5")
            callback.save_weights_only = True
        return callback

    def _recorder(self) -> Any:
        """A callback that keeps the history, and a checkpoint of each epoch."""
        training, base = self, self.keras.callbacks.Callback

        class Recorder(base):  # type: ignore[misc,valid-type]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                for name, value in (logs or {}).items():
                    training.history.setdefault(name, []).append(float(value))
                training.end_epoch(epoch, (logs or {}).get("loss", 0.0))

        return Recorder()


def of_rank(values: dict[str, Any], rank: int) -> dict[str, Any]:
    """The params, of those that were packed, with random numbers that no other rank draws: those of layers
    that have seeds of their own, too.
    """
    keras, seed = importlib.import_module(values["model"].package), values["random_seed"]
    if seed is None:
        seed = random.randrange(1 << 31)
    keras.utils.set_random_seed(seed + rank)  # before there are layers, which draw their seeds
    params = unpacked(values)
    if keras.__name__ != "keras":  # the seed above is a part of all others of tf_keras
        return params
    weights = {id(variable) for variable in params["model"].weights}
    for state in params["model"].variables:
        if id(state) not in weights:  # of a generator: its seed, and a count
            state.assign(np.asarray(keras.ops.convert_to_numpy(state)) + np.array([rank, 0]))
    return params


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
    weights, variables = model.get_weights(), model.optimizer.variables
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
        for number, variable in enumerate(model.optimizer.variables):
            variable.assign(arrays[f"optimizer_{number}"])
    if state["rate"] is not None:
        model.optimizer.learning_rate = state["rate"] * size
    return state


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


def choose_gpu(package: str, local_rank: int | None) -> None:
    """The GPU of this rank, or none, for TensorFlow; other frameworks have their own settings."""
    if backend_of(package) != "tensorflow":
        return
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    if found:
        chosen = [] if local_rank is None else [found[local_rank % len(found)]]
        tf.config.set_visible_devices(chosen, "GPU")
