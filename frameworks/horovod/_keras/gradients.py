"""Adding up the gradients of several backward passes of one optimizer of Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class GradientAccumulation:
    """Gradients of several backward passes, added up on this rank before they are reduced: sums, and a
    counter of the passes since they were last taken.

    They belong to no optimizer's ``variables``: a saved optimizer can be loaded with any number of passes,
    and what waits in the sums when it is saved is left out.
    """

    def __init__(self, keras: Any, passes: int, average: bool, is_eager: Callable[[], bool]) -> None:
        self._keras = keras
        self._passes = passes
        self._average = average
        self._is_eager = is_eager
        self._sums: list[Any] = []
        # The positions that have had a gradient: in this step, and in any pass.
        self._given: set[int] = set()
        self._ever_given: set[int] = set()
        self._is_handing_over = False
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
        if self._is_handing_over:  # the counter is of the next step already
            return passes + self._passes - 1
        return passes if self.counter is None else passes + self._keras.ops.cast(self.counter, updates.dtype)

    def add(
        self,
        positions: Sequence[int],
        gradients: Sequence[Any],
        take: Callable[[list[Any]], None],
    ) -> None:
        """Adds gradients to the sums at ``positions``. Calls ``take`` with the sums, or with the averages,
        in the last of the passes. None stays None, unless the variable has had a gradient in another pass of
        the step. A graph is made once for all passes, so there it is in any other.
        """
        ops = self._keras.ops
        for position, gradient in zip(positions, gradients, strict=True):
            if gradient is not None:
                self._given.add(position)
                self._ever_given.add(position)
                total = self._sums[position]
                total.assign_add(ops.cast(ops.convert_to_tensor(gradient), total.dtype))
        present = self._given if self._is_eager() else self._ever_given
        given = [self._sums[position] if position in present else None for position in positions]
        last = ops.equal(self.counter, self._passes - 1)
        self.counter.assign((self.counter + 1) % self._passes)
        ops.cond(last, lambda: self._hand_over(given, take), lambda: None)

    def forget(self) -> None:
        """Drops what was added since the sums were last taken: that step is not made."""
        self._given.clear()
        if self.counter is not None:
            for variable in (self.counter, *self._sums):
                variable.assign(self._keras.ops.zeros_like(variable))

    def _hand_over(self, given: Sequence[Any], take: Callable[[list[Any]], None]) -> None:
        divisor = self._passes if self._average else 1
        totals = [None if total is None else total / divisor for total in given]
        # Before the step is made: where that fails, the next one begins without this one's gradients.
        self._given.clear()
        for total in given:
            if total is not None:
                total.assign(self._keras.ops.zeros_like(total))
        self._is_handing_over = True
        try:
            take(totals)
        finally:
            self._is_handing_over = False
