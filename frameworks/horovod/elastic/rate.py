"""How the learning rate follows the number of ranks when each keeps its own batch size. No framework here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from horovod.common import basics

Rule = Literal["linear", "sqrt"] | Callable[[float], float]
"""What the rate is multiplied by when the global batch is so many times the one that it was chosen for."""

_RULES: dict[Any, Callable[[float], float]] = {"linear": float, "sqrt": math.sqrt}


class RateScale:
    """The factor of the learning rate: by a rule from the number of ranks, and after a change of the ranks
    from the old factor to the new one in equal stages, so that the optimizer's momentum can follow.

    The linear rule with a warm-up is that of P. Goyal et al., "Accurate, Large Minibatch SGD: Training
    ImageNet in 1 Hour" (arXiv:1706.02677); the square root suits Adam and its like.

    Args:
        ranks: for which the learning rate was chosen; None: those that there are at the start.
        rule: "linear", "sqrt", or a function of (ranks now) / (ranks then).
        warmup_steps: in how many steps the factor goes to a new value; 0: at once.

    Raises:
        ValueError: no such rule, or a number is too small.
    """

    def __init__(self, ranks: int | None = None, rule: Rule = "linear", warmup_steps: int = 100) -> None:
        if not callable(rule) and rule not in _RULES:
            raise ValueError(f'rule is "linear", "sqrt" or a function, not {rule!r}')
        if warmup_steps < 0 or (ranks is not None and ranks < 1):
            raise ValueError(
                f"ranks is at least 1 and warmup_steps at least 0, not {ranks} and {warmup_steps}"
            )
        self._rule = rule if callable(rule) else _RULES[rule]
        self._warmup = warmup_steps
        self._ranks = ranks  # None: those of the start, which is still to come
        self._from = self._target = self._wanted()
        self._made = 0  # steps since the target changed

    @property
    def factor(self) -> float:
        """That of the next step."""
        self._chosen_for()
        if self._made >= self._warmup:
            return self._target
        return self._from + (self._target - self._from) * (self._made + 1) / (self._warmup + 1)

    def record_step(self) -> None:
        """A step of the optimizer was made."""
        self._made = min(self._made + 1, self._warmup)

    def reset(self) -> None:
        """The ranks have changed; called by the state."""
        wanted = self._wanted()
        if wanted != self._target:
            self._from, self._target, self._made = self._reached(), wanted, 0

    def _reached(self) -> float:
        if self._made >= self._warmup:
            return self._target
        return self._from + (self._target - self._from) * self._made / (self._warmup + 1)

    def _wanted(self) -> float:
        now, then = _size(), self._chosen_for()
        factor = float(self._rule(now / then))
        if not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"the rule gives {factor} for {now} ranks instead of {then}")
        return factor

    def _chosen_for(self) -> int:
        if self._ranks is None and basics.is_initialized():
            self._ranks = _size()
        return self._ranks or _size()

    def state_dict(self) -> dict[str, Any]:
        """Where the factor is."""
        self._chosen_for()
        return {"ranks": self._ranks, "from": self._from, "target": self._target, "made": self._made}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there, to the factor of the ranks that there are now.

        Args:
            state_dict: of ``state_dict``.
        """
        self._ranks, self._made = state_dict["ranks"], int(state_dict["made"])
        self._from, self._target = float(state_dict["from"]), float(state_dict["target"])
        self.reset()


def _size() -> int:
    return basics.size() if basics.is_initialized() else 1
