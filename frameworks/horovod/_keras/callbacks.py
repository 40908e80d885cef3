"""What the callbacks do, without the class of Keras that makes them callbacks.

``KerasAdapter`` derives classes of each of these and ``keras.callbacks.Callback`` together, and says which
``Backend`` computes. None of them adds a hook at the end of a batch: Keras 3 could not run the others' in the
background then, and would wait for the device after every batch; the one that there is, for loops without
``fit``, is marked as none.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._keras import optimizer_variables
from horovod._keras.backend import Backend
from horovod.common.progress import progress


class CallbackPart:
    """Common to those that are no checkpoint: the attributes that Keras sets, and the backend."""

    _backend: Backend
    model: Any
    params: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self._supports_tf_logs = True  # Keras 2 need not convert the logs of every batch for us


class BroadcastGlobalVariables(CallbackPart):
    """Gives every rank the model and the optimizer of ``root_rank`` when training begins.

    What exists on all ranks when ``fit`` begins is broadcast then. All of it is broadcast once more after the
    first batch, when the variables exist of models and optimizers that are built by their first use: weights
    (also those that are not trained), slots, counts, learning rate. The states of random generators and
    metrics stay each rank's own, and so do gradients that are being accumulated.

    In a loop of your own around ``model.train_on_batch``, call ``set_model(model)`` before it and
    ``on_batch_end(batch)`` after each batch: all is broadcast after the first.

    Args:
        root_rank: The rank whose values all get.
        device: Has no effect: the framework knows where variables are.
        local_variables: Such as the part of an embedding table that only this rank has; they, and what the
            optimizer keeps for them, stay each rank's own, too. So do those that the optimizer was told of,
            by ``register_local_var`` or as ``local_layers``.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Sequence[Any] | None = None
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local_variables = list(local_variables or [])
        self._batches = 0
        self._done = False

    def register_local_var(self, var: Any) -> None:
        """Leaves ``var`` alone. It may be called until the first batch is over."""
        self._local_variables.append(var)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._batches, self._done = 0, False
        model = self._everywhere("model", self.model.built)
        optimizer = self._everywhere("optimizer", optimizer_variables.is_built(self.model.optimizer))
        self._broadcast(model, model and optimizer)

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._broadcast_once_trained()
        self._batches += 1

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._batches:  # a loop of the program's own, which calls nothing else
            self._batches = 1
            self._broadcast_once_trained()

    on_batch_end._is_default = True  # type: ignore[attr-defined]  # a fit needs no hook here

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._broadcast_once_trained()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._broadcast_once_trained()

    def _everywhere(self, part: str, built: bool) -> bool:
        """Whether a part of the model is built on all ranks: only then may they broadcast it."""
        name = f"broadcast.{part}_is_built"
        share = self._backend.mean({name: float(built)})[name]
        return share > 1 - 0.5 / self._backend.size()

    def _broadcast_once_trained(self) -> None:
        if self._batches and not self._done:
            self._done = True
            self._broadcast(True, True)

    def _broadcast(self, model: bool, optimizer: bool) -> None:
        self._backend.give_back(self.model)
        variables = list(self.model.weights) if model else []
        if optimizer:
            variables += optimizer_variables.all_variables(self.model.optimizer)
        if variables:
            own = {id(variable) for variable in self._own(optimizer)}
            shared = [variable for variable in variables if id(variable) not in own]
            self._backend.broadcast_variables(shared, self.root_rank)

    def _own(self, optimizer: bool) -> list[Any]:
        """What is not broadcast."""
        own = self._local_variables + optimizer_variables.local_variables(self.model.optimizer)
        if optimizer:
            own = own + optimizer_variables.state_of(self.model, own)
            own += optimizer_variables.pending_gradients(self.model.optimizer)
        return own


class MetricAverage(CallbackPart):
    """Replaces every number in the logs of an epoch, of training and of validation, by its average over all
    ranks.

    Place it before the callbacks that use the logs (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint,
    TensorBoard): in the list, later ones see the averages, and so does the history that ``fit`` returns. All
    ranks must have the same names in their logs, so what one rank alone adds must come after it.

    Args:
        device: Has no effect: the numbers are on the host.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not logs:
            return
        values = {name: _as_number(logs[name]) for name in sorted(logs)}
        means = self._backend.mean({name: float(v) for name, v in values.items() if v is not None})
        logs.update((name, _like(values[name], mean)) for name, mean in means.items())


def _as_number(value: Any) -> Any:
    """None for what has no average; a scalar tensor or array becomes a numpy number."""
    if hasattr(value, "__array__"):  # also of frameworks that have no ``numpy()``
        value = np.asarray(value)
    if getattr(value, "shape", None) == ():
        value = value[()]
    return value if isinstance(value, numbers.Real) else None


def _like(value: Any, mean: float) -> Any:
    """In the floating-point type of ``value``; the mean of integers is a float."""
    return mean if isinstance(value, numbers.Integral) else type(value)(mean)


class Progress(CallbackPart):
    """Says after each batch how far this rank is, for ``horovodrun top`` and ``horovodrun --metrics``: the
    batches of all epochs are the steps. Place it anywhere.

    Args:
        batch_size: How many samples a batch of this rank has, to know samples a second; 0: not known.
    """

    def __init__(self, batch_size: int = 0) -> None:
        super().__init__()
        self.batch_size = batch_size
        self._made = 0
        self._before = 0  # this epoch
        self._epoch = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._made = self._before = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._before = self._made = epoch * self._batches if self._batches else self._made

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._tell(self._before + batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._tell(self._before + self._batches if self._batches else self._made + 1)

    @property
    def _batches(self) -> int:
        """Of an epoch; 0: not known, as in a first epoch over data without a length."""
        return self.params.get("steps") or 0

    def _tell(self, made: int) -> None:
        more, self._made = max(0, made - self._made), made
        steps = self._batches * self.params.get("epochs", 0) or None
        progress(made, steps=steps, epoch=self._epoch, samples=self.batch_size * more)


class BestModel:
    """Rank 0 saves the model whenever ``monitor`` is better than ever; the other ranks do nothing.

    It is a ModelCheckpoint with ``save_best_only``. The attribute ``filepath`` says where; set it before
    training, to a name that may contain ``{epoch}`` and the names of logs. It is ``best_model.keras`` at
    first (``best_model.weights.h5`` when only weights are saved), in the working directory. Place it after
    MetricAverageCallback, otherwise rank 0 judges by its own part of the data.

    Args:
        monitor: The name in the logs that is compared.
        verbose: 1 prints a line for each model that is saved.
        save_weights_only: Whether the file gets the weights alone.
        mode: What is better: "min", "max", or "auto" by the name of ``monitor``.
        save_freq: "epoch", or how many batches are between two looks.
    """

    _backend: Backend
    filepath: str

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath="best_model.weights.h5" if save_weights_only else "best_model.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )  # type: ignore[call-arg]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._backend.rank() == 0:
            super().on_epoch_end(epoch, logs)  # type: ignore[misc]

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._backend.rank() == 0:
            super().on_train_batch_end(batch, logs)  # type: ignore[misc]
