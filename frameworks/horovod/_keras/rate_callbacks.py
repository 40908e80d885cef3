"""The callbacks that change the learning rate; the formulas are in ``common.training.learning_rate``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from horovod._keras import optimizer_variables
from horovod._keras.callbacks import CallbackPart
from horovod.common.training import learning_rate as rates
from horovod.common.training.agreement import at_construction
from horovod.elastic import notices

_WARMUP_END = "horovod_warmup_end"  # in the parameters of a fit, which all its callbacks share
_ROUNDING = 1e-7  # of the optimizer's rate, which is a float32


class _RateCallback(CallbackPart):
    """Changes the rate from ``start_epoch`` until before ``end_epoch``."""

    def __init__(
        self,
        initial_lr: float | None,
        start_epoch: float,
        end_epoch: float | None,
        momentum_correction: bool,
        steps_per_epoch: int | None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._base_rate = 0.0
        self._steps = 0  # unknown

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        optimizer_variables.check_rate_is_settable(optimizer)
        self._base_rate = self._initial_rate(optimizer)
        self._steps = self.steps_per_epoch or _steps_of(self.params or {})

    def _initial_rate(self, optimizer: Any) -> float:
        if self.initial_lr is not None:
            return self.initial_lr
        if _may_begin_again():
            raise ValueError(
                f"{type(self).__name__} needs initial_lr in an elastic job: when training begins again after "
                "a change of the ranks, the optimizer has the rate of the last commit, not the first one."
            )
        return optimizer_variables.learning_rate(optimizer, self._backend.result)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.current_epoch = epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._backend.give_back(self.model)
        if logs is not None:
            logs["lr"] = optimizer_variables.learning_rate(self.model.optimizer, self._backend.result)

    def _set(self, rate: float) -> None:
        self._backend.give_back(self.model)
        optimizer = self.model.optimizer
        old = optimizer_variables.learning_rate(optimizer, self._backend.result)
        if math.isclose(rate, old, rel_tol=_ROUNDING):
            return
        optimizer_variables.set_learning_rate(optimizer, rate)
        if self.momentum_correction:
            factor = rates.velocity_factor(old, rate)
            for velocity in optimizer_variables.velocities(self.model):
                self._backend.result(velocity.assign(velocity * factor))

    def _need_steps(self) -> None:
        if not self._steps:
            raise ValueError(
                f"{type(self).__name__} cannot tell how many batches an epoch has; give it steps_per_epoch, "
                "the same number on all ranks."
            )


def _may_begin_again() -> bool:
    """Whether this training goes on after a change of the ranks, at a rate that has been changed."""
    return not at_construction() and notices.has_listeners()


def _steps_of(params: dict[str, Any]) -> int:
    """How many batches an epoch has; 0: unknown. Of arrays a session's fit tells samples and batch size."""
    if samples := params.get("samples"):
        return params.get("steps") or math.ceil(samples / (params.get("batch_size") or samples))
    return params.get("steps") or 0


class LearningRateSchedule(_RateCallback):
    """Multiplies the learning rate by what ``multiplier`` says, from ``start_epoch`` until before
    ``end_epoch``.

    While a LearningRateWarmupCallback of the same training is active the rate is left alone. The logs of
    every epoch get the rate as ``lr``.

    Args:
        initial_lr: What is multiplied. None is the rate that the optimizer has when training begins; give a
            number where the ranks may begin with different ones, such as when only rank 0 has loaded a
            checkpoint. An elastic job needs one.
        multiplier: A function of the epoch, or a number m, which means ``m ** (epoch - start_epoch)``.
        start_epoch: The first epoch.
        end_epoch: The first epoch that is left alone again; None: the rate is changed to the end.
        staircase: The rate changes when an epoch begins, as always for a number; otherwise with every batch,
            and the function is given fractions of epochs.
        momentum_correction: Keeps the momentum of SGD and RMSprop what it would be if all earlier steps had
            been taken at the new rate: their velocities are multiplied by new / old when the rate changes.
        steps_per_epoch: How many batches an epoch has, where ``staircase`` is False. None is what Keras knows
            about the data.

    Raises:
        ValueError: When training begins, if the optimizer's rate is a LearningRateSchedule of Keras, the
            steps of an epoch are needed and unknown, or an elastic job lacks ``initial_lr``.
    """

    def __init__(
        self,
        initial_lr: float | None = None,
        multiplier: float | Callable[[float], float] = 1.0,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(initial_lr, start_epoch, end_epoch, momentum_correction, steps_per_epoch)
        self.staircase = staircase or not callable(multiplier)
        self.multiplier = (
            multiplier if callable(multiplier) else rates.power_schedule(multiplier, start_epoch)
        )

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        if not self.staircase:
            self._need_steps()

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        epoch = self.current_epoch
        warming_up = epoch < (self.params or {}).get(_WARMUP_END, 0)
        if warming_up or not rates.is_active(epoch, self.start_epoch, self.end_epoch):
            return
        if not self.staircase:
            self._set(self._base_rate * self.multiplier(rates.exact_epoch(epoch, batch, self._steps)))
        elif batch == 0:
            self._set(self._base_rate * self.multiplier(epoch))


class LearningRateWarmup(_RateCallback):
    """Raises the learning rate with every batch, in equal steps, from ``initial_lr / size`` to ``initial_lr``
    at the end of ``warmup_epochs`` epochs. The logs of every epoch get the rate as ``lr``.

    Args:
        initial_lr: The rate for the whole job, commonly that of one process times ``hvd.size()``. None is
            what the optimizer has when training begins. An elastic job needs a number.
        warmup_epochs: How long it takes; not negative.
        momentum_correction: As for LearningRateScheduleCallback.
        steps_per_epoch: How many batches an epoch has. None is what Keras knows about the data.
        verbose: 1 makes rank 0 print a line at the end of the warm-up.

    Raises:
        ValueError: For negative ``warmup_epochs``; otherwise as LearningRateScheduleCallback.
    """

    def __init__(
        self,
        initial_lr: float | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        if warmup_epochs < 0:
            raise ValueError(f"warmup_epochs must not be negative, got {warmup_epochs}")
        super().__init__(initial_lr, 0, warmup_epochs, momentum_correction, steps_per_epoch)
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._need_steps()
        if self.params is not None:
            self.params[_WARMUP_END] = self.warmup_epochs

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        epoch, size = self.current_epoch, self._backend.size()
        if rates.is_active(epoch, self.start_epoch, self.end_epoch):
            self._set(rates.warmup_rate(self._base_rate, epoch, batch, self._steps, size, self.warmup_epochs))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == math.ceil(self.warmup_epochs) - 1 and self._backend.rank() == 0:
            rate = optimizer_variables.learning_rate(self.model.optimizer, self._backend.result)
            print(f"\nEpoch {epoch + 1}: the warm-up is over, the learning rate is {rate:g}.", flush=True)
