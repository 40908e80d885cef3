"""Variables that are a rank's own: their gradients are not reduced, in whatever framework."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from horovod.common.training.present_gradients import OF_THIS_RANK


class LocalVariables:
    """The variables of a training whose gradients stay on this rank.

    Attributes:
        layers: Whose weights are among them. They are asked each time, because they may be built later.

    Args:
        identity: What two objects that stand for one variable have in common.
        layers: The first of them.
        scaled: What becomes of such a gradient.
    """

    def __init__(
        self,
        identity: Callable[[Any], Hashable],
        layers: Sequence[Any] = (),
        scaled: Callable[[Any], Any] = lambda gradient: gradient,
    ) -> None:
        self._identity = identity
        self.layers = list(layers)
        self._scaled = scaled
        self._registered: dict[Hashable, Any] = {}

    def register(self, variable: Any) -> None:
        """Makes ``variable`` one of this rank's own."""
        self._registered[self._identity(variable)] = variable

    def __contains__(self, variable: Any) -> bool:
        return self._identity(variable) in self._keys()

    def __iter__(self) -> Iterator[Any]:
        """All, as far as they have been built."""
        yield from self._registered.values()
        for layer in self.layers:
            yield from layer.weights

    def reduce(
        self, reducer: Callable[..., Sequence[Any]], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        """The gradients to apply, in the same order: those of all other variables reduced by ``reducer``,
        None where no rank has any, and the local ones scaled.
        """
        keys = self._keys()
        local = [self._identity(variable) in keys for variable in variables] if keys else []
        if not any(local):
            return list(reducer(gradients, variables))
        shared = [None if own else each for each, own in zip(gradients, local, strict=True)]
        theirs = [OF_THIS_RANK if own else each for each, own in zip(variables, local, strict=True)]
        reduced = reducer(shared, theirs)
        return [
            total if not own else mine if mine is None else self._scaled(mine)
            for mine, total, own in zip(gradients, reduced, local, strict=True)
        ]

    def _keys(self) -> set[Hashable]:
        weights = (weight for layer in self.layers for weight in layer.trainable_weights)
        return {*self._registered, *map(self._identity, weights)}
