"""The gradient of one parameter: the hook that autograd calls when it has made it, what kind of gradient it
is, and whether the program has changed it since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from horovod.common.training.gradient_status import ABSENT, DENSE, FROZEN, SPARSE
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.layouts import laid_out_as, overlaps

if TYPE_CHECKING:
    from horovod.torch.buckets import Bucket

_TOO_MANY_PASSES = (
    "The gradient of {name} was computed more than backward_passes_per_step times before optimizer.step() or "
    "optimizer.synchronize(), and is being reduced already. If several backward passes are to make one step, "
    "add up their losses, make the earlier passes within optimizer.no_sync(), or give "
    "DistributedOptimizer(backward_passes_per_step=...) their number. If the pass before belonged to another "
    "optimizer's step, as in a GAN, drop its gradients by zero_grad() with set_to_none=True. With "
    "synchronize_in_backward=True each pass is reduced as DistributedDataParallel does it. After a backward "
    "pass that failed, call optimizer.zero_grad()."
)


@methods_outside_of_graphs
class GradientHook:
    """Called by autograd after each accumulation of the gradient of ``parameter``, which travels in
    ``bucket``.

    ``expected``: the kinds of gradients, as bits, that the ranks know some of them to have; any other is
    news. ``is_sparse``: they have agreed that it travels as a sparse one. ``filled``: it is zeros in place of
    one that this step did not make. ``sent``: what is being reduced, or about to be.
    """

    __slots__ = (
        "_compressor",
        "_version",
        "bucket",
        "expected",
        "filled",
        "is_sparse",
        "name",
        "parameter",
        "passes_left",
        "registration",
        "sent",
    )

    def __init__(self, name: str, parameter: torch.Tensor, bucket: Bucket) -> None:
        self.name = name
        self.parameter = parameter
        self.bucket = bucket
        self.passes_left = bucket.reducer.passes
        self.filled = False
        self.sent: torch.Tensor | None = None
        self._version = 0
        self._compressor: Any = None
        self.registration: torch.utils.hooks.RemovableHandle | None = None
        self.forget()

    def __call__(self, parameter: torch.Tensor) -> None:
        bucket = self.bucket
        left = self.passes_left - 1
        if left < 0:
            if parameter.grad is self.sent or not bucket.reducer.drop_old():
                raise AssertionError(_TOO_MANY_PASSES.format(name=repr(self.name)))
            left = self.passes_left - 1
        if bucket.reducer.paused:
            bucket.touch()
            return
        self.passes_left = left
        if left == 0:
            self.remember(parameter.grad)
            bucket.one_more_due()
        else:
            bucket.touch()

    def remember(self, gradient: torch.Tensor | None) -> None:
        """Remembers the gradient, which the program must not change from now on."""
        self.sent = gradient
        if gradient is not None:
            self._version = gradient._version

    @property
    def kind(self) -> int:
        """What this step has made; the constants are those of ``gradient_status``."""
        gradient = self.parameter.grad
        if not self.parameter.requires_grad:
            return FROZEN
        if gradient is None or self.filled:
            return ABSENT
        return DENSE if gradient.layout is torch.strided or self.bucket.reducer.sparse_as_dense else SPARSE

    @property
    def holds_sent(self) -> bool:
        """Whether the parameter still has the gradient that was remembered."""
        return self.sent is not None and self.parameter.grad is self.sent

    @property
    def is_missing(self) -> bool:
        """Whether this step made no gradient."""
        return self.filled or self.parameter.grad is None

    @property
    def compressor(self) -> Any:
        """The stateful compressor that belongs to this gradient."""
        if self._compressor is None:
            self._compressor = self.bucket.reducer.compressor()
        return self._compressor

    def learn(self, found: int) -> None:
        """What kinds of gradients the ranks have in this step. One that is sparse somewhere and dense nowhere
        travels as a sparse one from then on.
        """
        if found & FROZEN:
            self.expected = FROZEN
            return
        self.expected = (self.expected | found | DENSE) & ~FROZEN
        if found & SPARSE:
            self.is_sparse = not found & DENSE

    def forget(self) -> None:
        """For a new job, whose ranks know nothing of each other's gradients."""
        self.expected = DENSE
        self.is_sparse = False
        self._compressor = None

    def dense_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made dense where it is sparse, with memory of its own where it is an
        expanded view, zeros where there is none; the parameter holds what is returned.
        """
        gradient = self.parameter.grad
        if gradient is None:
            self.filled = True
            gradient = self.parameter.grad = torch.zeros_like(self.parameter)
        elif gradient.layout is not torch.strided:
            gradient = self.parameter.grad = laid_out_as(gradient.to_dense(), self.parameter)
        elif overlaps(gradient):
            gradient = self.parameter.grad = laid_out_as(gradient.contiguous(), self.parameter)
        if gradient is not self.sent:
            self.remember(gradient)
        return gradient

    def sparse_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made sparse (rows of the first dimension) where it is dense or absent."""
        gradient = self.parameter.grad
        if gradient is None or self.filled:
            self.filled = True
            parameter = self.parameter
            indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
            values = parameter.detach().new_empty((0, *parameter.shape[1:]))
            gradient = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
        elif gradient.layout is torch.strided:
            gradient = gradient.to_sparse(1)
        return gradient.coalesce()

    def is_changed(self, known: bool) -> bool:
        """Whether the program has changed the gradient since it was remembered: in place, or by giving the
        parameter another one. ``known``: it has, in a way that torch does not count, such as
        ``p.grad.data.clamp_()``.
        """
        sent = self.sent
        if sent is None:
            return False
        if known or self.parameter.grad is not sent:
            return True
        # A part of a larger tensor has a version in common with the other parts.
        return sent._version != self._version and sent.untyped_storage().nbytes() == sent.nbytes

    def end_step(self) -> None:
        """Expects a full step's passes again. A parameter that is not trained must not keep the zeros."""
        self.passes_left = self.bucket.reducer.passes
        self.sent = None
        if self.filled:
            self.filled = False
            if not self.parameter.requires_grad:
                self.parameter.grad = None
