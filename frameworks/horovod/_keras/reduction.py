"""The gradients of one optimizer: which of them are reduced, and what happens to the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from horovod._keras.plan import Plan


class GradientReduction:
    """Reduces gradients by a plan. Variables that are registered as local keep this rank's own gradients."""

    def __init__(self, plan: Plan, key: Callable[[Any], Hashable]) -> None:
        """``key`` identifies a variable, however it is wrapped."""
        self._plan = plan
        self._key = key
        self._local: set[Hashable] = set()

    def register_local(self, variable: Any) -> None:
        """From now on the gradient of ``variable`` stays on this rank."""
        self._local.add(self._key(variable))

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients to apply, in the same order. None stays None."""
        plan = self._plan
        local = self._local_positions(variables)
        shared = [index for index in range(len(variables)) if index not in local]
        result = list(gradients)
        if shared:
            reduced = plan.backend.reduce_gradients(
                [gradients[index] for index in shared], [variables[index] for index in shared], plan.settings
            )
            for index, gradient in zip(shared, reduced, strict=True):
                result[index] = gradient
        factor = self._local_factor() if local else 1.0
        for index in local:
            if factor != 1.0 and result[index] is not None:
                result[index] = plan.backend.scale(result[index], factor)
        return result

    def _local_positions(self, variables: Sequence[Any]) -> set[int]:
        # Layers are asked each time, because they may have been built only after they were given.
        layers = self._plan.local_layers
        keys = self._local | {self._key(weight) for layer in layers for weight in layer.trainable_weights}
        if not keys:
            return set()
        return {index for index, variable in enumerate(variables) if self._key(variable) in keys}

    def _local_factor(self) -> float:
        process_set = self._plan.settings.process_set
        if not self._plan.scale_local or not process_set.included():
            return 1.0
        return 1.0 / (process_set.size() or 1)
