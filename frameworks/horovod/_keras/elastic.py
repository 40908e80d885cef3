"""Elastic training with Keras: the state of a model and its optimizer, and callbacks that keep it current.
Which Keras it is, and by which framework it computes, says a ``Backend``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras import optimizer_variables
from horovod._keras.callbacks import CallbackPart
from horovod.common import basics
from horovod.common.collective import byte_objects
from horovod.elastic.handlers import HandlerMaker, HandlerState
from horovod.elastic.rate import RateScale
from horovod.elastic.variables import VariablesHandler

Broadcast = Callable[[Sequence[Any], int], None]


class _KerasHandler(VariablesHandler):
    """Of an object of Keras. ``broadcast``: of the framework."""

    def __init__(self, value: Any, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        super().__init__(value)

    def read(self, variables: Sequence[Any]) -> list[Any]:
        return [variable.numpy() for variable in variables]

    def write(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)

    def broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        self._broadcast(variables, root_rank)


class ModelHandler(_KerasHandler):
    """Of a model. Its metrics and random generators are saved and restored, too, but stay each rank's own."""

    def all_variables(self) -> list[Any]:
        return list(self.value.variables)

    def shared_variables(self) -> list[Any]:
        return list(self.value.weights)

    def sync(self) -> None:
        super().sync()
        if not self.value.weights and basics.size() > 1:
            raise ValueError(
                f"The model {self.value.name!r} has no weights yet, so the ranks cannot have the same. Build "
                "it before it becomes part of a state: call model.build(), or the model with a batch."
            )


class OptimizerHandler(_KerasHandler):
    """Of an optimizer, distributed or not."""

    def all_variables(self) -> list[Any]:
        return optimizer_variables.all_variables(self.value)

    def forget_gradients(self) -> None:
        optimizer_variables.forget_passes(self.value)


class ModelState(HandlerState):
    """A model, its optimizer, and whatever else the training needs to go on. What is derived from it says how
    variables travel.

    Args:
        model: built, so that it has weights.
        optimizer: by default that of the model, if it is compiled.
        **kwargs: further attributes, such as ``epoch=0, batch=0``.
    """

    model: Any

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self._make_model = functools.partial(ModelHandler, broadcast=self._broadcast)
        self._make_optimizer = functools.partial(OptimizerHandler, broadcast=self._broadcast)
        if optimizer is None:
            optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and model.built:
            optimizer_variables.build(optimizer, model.trainable_variables)
        objects = functools.partial(byte_objects.objects.broadcast_object, name="state.sync(): objects")
        super().__init__(objects, basics.rank, model=model, optimizer=optimizer, **kwargs)

    def _broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        """Gives variables on all ranks the values of one."""
        raise NotImplementedError

    def _maker_for(self, name: str, value: Any) -> HandlerMaker | None:
        makers: dict[str, HandlerMaker] = {"model": self._make_model, "optimizer": self._make_optimizer}
        if value is not None and name in makers:
            return makers[name]
        return super()._maker_for(name, value)


class _StatePart(CallbackPart):
    """Common to the callbacks here. Those that note something about the training do so before the state is
    committed, wherever they are in the list of callbacks.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        noting = self.state.__dict__.setdefault("_noting", {})
        noting[type(self).__name__] = self

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.state.__dict__["_noting"].pop(type(self).__name__, None)

    def note_batch(self, batch: int) -> None:
        """A batch is over."""

    def note_epoch(self, epoch: int) -> None:
        """An epoch is over."""

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.note_batch(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.note_epoch(epoch)


class CommitState(_StatePart):
    """Commits the state after every so many batches, and at the end of each epoch.

    Args:
        state: of ``horovod.elastic``.
        batches_per_commit: how many batches. After a failure the training goes on from the last commit; each
            copies the whole state. With ``backward_passes_per_step``, take a multiple of it: gradients of a
            step that is not complete are no part of a commit.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit is at least 1, not {batches_per_commit}")
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            for part in self._others():
                part.note_batch(batch)
            self._commit()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for part in self._others():
            part.note_epoch(epoch)
        self._commit()

    def _others(self) -> list[_StatePart]:
        return list(self.state.__dict__["_noting"].values())

    def _commit(self) -> None:
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchState(_StatePart):
    """Keeps ``state.batch`` at the number of batches of the present epoch that are over; 0 after each epoch.

    An epoch that goes on after a reset begins with the batch ``state.batch``: give ``fit`` what is left of
    its data then, as ``hvd.elastic.ElasticIndices`` does.

    Args:
        state: of ``horovod.elastic``, with an attribute ``batch``.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._earlier = self.state.batch

    def note_batch(self, batch: int) -> None:
        self.state.batch = self._earlier + batch + 1

    def note_epoch(self, epoch: int) -> None:
        self._earlier = self.state.batch = 0


class UpdateEpochState(_StatePart):
    """Keeps ``state.epoch`` at the number of epochs that are over: ``fit(initial_epoch=state.epoch)`` goes on
    from there, and so does ``fit(epochs=epochs - state.epoch)``.

    Args:
        state: of ``horovod.elastic``, with an attribute ``epoch``.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._earlier = self.state.epoch
        self._first: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._first = epoch if self._first is None else self._first

    def note_epoch(self, epoch: int) -> None:
        first = epoch if self._first is None else self._first
        self.state.epoch = self._earlier + epoch - first + 1


class LearningRateScale(_StatePart):
    """Scales the learning rate of each batch by the number of ranks, where each rank keeps its batch size.

    It holds during the batch alone: before and after, the optimizer has the unscaled rate, so other
    callbacks and commits work as they always do, and the factor is never applied twice::

        scale = hvd.elastic.RateScale(ranks=4, rule="linear", warmup_steps=100)
        state = hvd.elastic.KerasState(model, scale=scale, batch=0, epoch=0)
        callbacks = [hvd.elastic.LearningRateScaleCallback(state, scale), ...]

    Args:
        state: of ``horovod.elastic``.
        scale: the factor; an attribute of the state.

    Raises (when training begins):
        ValueError: the optimizer's rate is a schedule, which cannot be changed from outside.
    """

    def __init__(self, state: Any, scale: RateScale) -> None:
        super().__init__(state)
        self.scale = scale
        self._unscaled: float | None = None
        self._scaled: float | None = None  # what the optimizer made of it

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        optimizer_variables.check_rate_is_settable(self.model.optimizer)
        self._undo()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._undo()
        optimizer = self.model.optimizer
        self._unscaled = optimizer_variables.learning_rate(optimizer, self._backend.result)
        optimizer_variables.set_learning_rate(optimizer, self._unscaled * self.scale.factor)
        self._scaled = optimizer_variables.learning_rate(optimizer, self._backend.result)

    def _undo(self) -> None:
        """After a batch that has raised: gives the rate back, unless it was set to another since."""
        optimizer = self.model.optimizer
        if (
            self._unscaled is not None
            and optimizer_variables.learning_rate(optimizer, self._backend.result) == self._scaled
        ):
            optimizer_variables.set_learning_rate(optimizer, self._unscaled)
        self._unscaled = None

    def note_batch(self, batch: int) -> None:
        if self._unscaled is None:
            return
        optimizer_variables.set_learning_rate(self.model.optimizer, self._unscaled)
        self._unscaled = None
        self.scale.record_step()
