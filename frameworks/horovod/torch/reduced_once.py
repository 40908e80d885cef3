"""Gradients that must be reduced only once in a step."""

from collections.abc import Iterable

import torch

from horovod.common.reduce_ops import OP_NAMES, Product, Sum


class ReducedOnce:
    """What a backward pass of this step has reduced. A later pass adds to it and is reduced as well: the
    average of an average and new gradients is right, the sum of a sum and new ones counts the old again.
    """

    def __init__(self) -> None:
        self._op = Sum
        self._reduced: list[tuple[torch.Tensor, torch.Tensor, int]] = []  # parameter, gradient, its version

    def note(self, op: int, parameters: Iterable[torch.Tensor]) -> None:
        """A backward pass is over, and the gradients of the parameters are reduced."""
        if op in (Sum, Product):
            self._op = op
            self._reduced = [(p, p.grad, p.grad._version) for p in parameters if p.grad is not None]

    def check(self) -> None:
        """Raises AssertionError if another backward pass would have them reduced again."""
        # Zeros that the program has written before the pass are a version more.
        if any(
            p.grad is gradient and gradient._version <= version + 1 for p, gradient, version in self._reduced
        ):
            name = OP_NAMES[self._op]
            raise AssertionError(
                "With synchronize_in_backward=True a backward pass has added to gradients that an earlier "
                f"one has reduced by op=hvd.{name}, which would be reduced once more: a wrong {name}. Use "
                "op=hvd.Average (and a learning rate that goes with it), add up the losses, or make the "
                "earlier passes within optimizer.no_sync(). If the earlier gradients are not wanted, call "
                "optimizer.zero_grad()."
            )
