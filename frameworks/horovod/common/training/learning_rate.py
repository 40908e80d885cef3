"""Learning rates over time, as pure functions: schedules, the warm-up, and what momentum makes of a change.

An epoch may be a fraction: epoch 2 after 3 of 12 batches is 2.25. The warm-up and the correction are those of
Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, section 2.2 and remark 2.
"""

from __future__ import annotations

from collections.abc import Callable


def exact_epoch(epoch: int, batch: int, steps_per_epoch: int) -> float:
    """How many epochs are over when batch number ``batch`` (from 0) of epoch number ``epoch`` begins."""
    return epoch + batch / steps_per_epoch


def is_active(epoch: float, start_epoch: float, end_epoch: float | None) -> bool:
    """Whether an epoch lies in [start_epoch, end_epoch); None is no end."""
    return start_epoch <= epoch and (end_epoch is None or epoch < end_epoch)


def power_schedule(multiplier: float, start_epoch: int) -> Callable[[float], float]:
    """What a constant multiplier m means: m to the power of the epochs since ``start_epoch``."""
    return lambda epoch: multiplier ** (epoch - start_epoch)


def warmup_factor(epoch: float, size: int, warmup_epochs: float) -> float:
    """What the rate is multiplied by, ``epoch`` epochs into training: from 1/size it grows linearly to 1 at
    ``warmup_epochs``, and stays there.
    """
    if epoch >= warmup_epochs:
        return 1.0
    return (1 + epoch * (size - 1) / warmup_epochs) / size


def warmup_rate(
    initial_lr: float, epoch: int, batch: int, steps_per_epoch: int, size: int, warmup_epochs: float
) -> float:
    """The rate of one batch of the warm-up. The last batch has the full rate ``initial_lr``: a batch counts
    as over when it begins.
    """
    return initial_lr * warmup_factor(exact_epoch(epoch, batch + 1, steps_per_epoch), size, warmup_epochs)


def velocity_factor(old_rate: float, new_rate: float) -> float:
    """By what to multiply the velocity of SGD with momentum before the first step at another rate.

    A velocity v = momentum * v - rate * gradient holds the rates of earlier steps. Multiplied by new / old it
    is what it would be if all of them had been taken at the new rate; in the step that follows this equals a
    momentum of momentum * new / old for that step alone. 1 after a rate of 0, which has left nothing to
    scale.
    """
    return new_rate / old_rate if old_rate else 1.0
