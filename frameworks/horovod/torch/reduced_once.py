"""Gradients that must be reduced only once in a step."""

from collections.abc import Iterable

import torch

from horovod.common.reduce_ops import OP_NAMES, Product, Sum
from horovod.common.training.gradient_buckets import Bucket
from horovod.common.training.gradient_variables import Variable


class ReducedOnce:
    """What a backward pass of this step has reduced. A later pass adds to it and is reduced as well: the
    average of an average and new gradients is right, the sum of a sum and new ones counts the old again.
    """

    def __init__(self) -> None:
        self._op = Sum
        # The gradient of each, its version, and how often it had been made.
        self._reduced: list[tuple[Variable, torch.Tensor, int, int]] = []

    def note(self, op: int, buckets: Iterable[Bucket]) -> None:
        """A backward pass is over, and the gradients of the buckets are reduced."""
        if op in (Sum, Product):
            self._op = op
            members = [each for bucket in buckets for each in bucket.members]
            self._reduced = [
                (each, gradient, gradient._version, each.made)
                for each in members
                if (gradient := each.parameter.grad) is not None
            ]

    def check(self) -> None:
        """Raises AssertionError if another backward pass would have them reduced again."""
        # Each pass is a version. Zeros that the program has written before are one more.
        if any(
            each.parameter.grad is gradient and gradient._version - version <= each.made - made
            for each, gradient, version, made in self._reduced
        ):
            name = OP_NAMES[self._op]
            raise AssertionError(
                "With synchronize_in_backward=True a backward pass has added to gradients that an earlier "
                f"one has reduced by op=hvd.{name}, which would be reduced once more: a wrong {name}. Use "
                "op=hvd.Average (and a learning rate that goes with it), add up the losses, or make the "
                "earlier passes within optimizer.no_sync(). If the earlier gradients are not wanted, call "
                "optimizer.zero_grad()."
            )
