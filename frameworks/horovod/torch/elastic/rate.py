"""The learning rate of an optimizer that follows the number of ranks."""

from __future__ import annotations

from typing import Any

import torch

from horovod.elastic.rate import RateScale, Rule


class LearningRateScale(RateScale):
    """Scales the learning rate of each step by the number of ranks, where each rank keeps its batch size.

    Make it an attribute of the state; nothing else is to be called::

        scale = hvd.elastic.LearningRateScale(optimizer, ranks=4, rule="linear", warmup_steps=100)
        state = hvd.elastic.TorchState(model, optimizer, scale=scale, epoch=0)

    It holds during ``optimizer.step()`` alone: before and after, ``param_groups`` have the unscaled rates,
    so schedulers and checkpoints work as they always do, and the factor is never applied twice.

    Args:
        optimizer: distributed or not.
        ranks: for which its learning rate was chosen; None: those that there are now.
        rule: "linear", "sqrt", or a function of (ranks now) / (ranks then) that returns the factor.
        warmup_steps: in how many steps the factor goes to a new value; 0: at once.

    Raises:
        ValueError: no such rule, or a number is too small.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, ranks: int | None = None, rule: Rule = "linear",
        warmup_steps: int = 100,
    ) -> None:  # fmt: skip
        super().__init__(ranks, rule, warmup_steps)
        self._rates: list[tuple[Any, Any]] = []  # of each group: its own, and the scaled one
        optimizer.register_step_pre_hook(self._scale)
        optimizer.register_step_post_hook(self._restore)

    def _scale(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group, (rate, scaled) in zip(optimizer.param_groups, self._rates, strict=False):
            if group["lr"] is scaled:  # of a step that has raised, which nobody has put right
                group["lr"] = rate
        self._rates = [(group["lr"], group["lr"] * self.factor) for group in optimizer.param_groups]
        for group, (_, scaled) in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = scaled

    def _restore(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group, (rate, _scaled) in zip(optimizer.param_groups, self._rates, strict=False):
            group["lr"] = rate
        self._rates = []
        self.record_step()
