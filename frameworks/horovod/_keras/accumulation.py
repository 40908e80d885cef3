"""Gradients of several backward passes, added up on this rank before they travel. For Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class GradientAccumulation:
    """Sums, and a counter of the passes since they were last taken.

    They belong to no optimizer's ``variables``: a saved optimizer can be loaded with any number of passes,
    and what waits in the sums when it is saved is left out.
    """

    def __init__(self, keras: Any, passes: int, average: bool) -> None:
        self._keras = keras
        self._passes = passes
        self._average = average
        self._sums: list[Any] = []
        self.counter: Any = None

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the sums, one for each variable."""
        make = self._keras.Variable
        self.counter = make(0, dtype="int32", trainable=False, name="backward_passes")
        self._sums = [
            make("zeros", shape=v.shape, dtype=v.dtype, trainable=False, name=f"gradient_sum_{index}")
            for index, v in enumerate(variables)
        ]

    def passes_before(self, updates: Any) -> Any:
        """How many passes came before this one; the variable ``updates`` says how many steps were made."""
        passes = updates * self._passes
        return passes if self.counter is None else passes + self._keras.ops.cast(self.counter, updates.dtype)

    def add(
        self,
        positions: Sequence[int],
        gradients: Sequence[Any],
        take: Callable[[list[Any]], None],
    ) -> None:
        """Adds gradients to the sums at ``positions``. Calls ``take`` with the sums, or with the averages,
        in the last of the passes. None stays None.
        """
        ops = self._keras.ops
        given = [None if g is None else self._sums[p] for p, g in zip(positions, gradients, strict=True)]
        for total, gradient in zip(given, gradients, strict=True):
            if total is not None:
                total.assign_add(ops.cast(ops.convert_to_tensor(gradient), total.dtype))
        last = ops.equal(self.counter, self._passes - 1)
        ops.cond(last, lambda: self._hand_over(given, take), lambda: None)
        self.counter.assign((self.counter + 1) % self._passes)

    def _hand_over(self, given: Sequence[Any], take: Callable[[list[Any]], None]) -> None:
        divisor = self._passes if self._average else 1
        take([None if total is None else total / divisor for total in given])
        for total in given:
            if total is not None:
                total.assign(self._keras.ops.zeros_like(total))
