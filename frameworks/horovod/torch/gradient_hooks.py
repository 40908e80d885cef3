"""A parameter of torch: the hook that autograd calls when it has made its gradient, and what the reduction
asks of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod.common.training.gradient_buckets import Bucket
from horovod.common.training.gradient_status import ABSENT, DENSE, FROZEN, SPARSE
from horovod.common.training.gradient_variables import Variable
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.layouts import laid_out_as, overlaps
from horovod.torch.operations import ops


@methods_outside_of_graphs
class GradientHook(Variable[torch.Tensor]):
    """See ``Variable``. Registered with autograd by ``attach``."""

    __slots__ = ("_registration", "_version")
    parameter: torch.Tensor

    def __init__(self, name: str, parameter: torch.Tensor, bucket: Bucket[torch.Tensor]) -> None:
        super().__init__(name, parameter, bucket)
        self._version = 0
        self._registration: torch.utils.hooks.RemovableHandle | None = None

    def attach(self) -> None:
        """See ``Variable``."""
        self._registration = self.parameter.register_post_accumulate_grad_hook(self)

    def detach(self) -> None:
        """See ``Variable``."""
        if self._registration is not None:
            self._registration.remove()

    def remember(self) -> None:
        """See ``Variable``."""
        self.sent = gradient = self.parameter.grad
        if gradient is not None:
            self._version = gradient._version

    @property
    def holds_sent(self) -> bool:
        """See ``Variable``."""
        return self.sent is not None and self.parameter.grad is self.sent

    def is_changed(self, known: bool) -> bool:
        """See ``Variable``. In place, or by giving the parameter another one; ``p.grad.data.clamp_()`` is one
        that only the core sees.
        """
        sent = self.sent
        if sent is None:
            return False
        if known or self.parameter.grad is not sent:
            return True
        # A part of a larger tensor has a version in common with the other parts.
        return sent._version != self._version and sent.untyped_storage().nbytes() == sent.nbytes

    def sample(self) -> str | None:
        """See ``Variable``."""
        gradient = self.parameter.grad
        if gradient is None or not gradient.is_cpu or not gradient.numel() or not gradient.is_contiguous():
            return None
        return str(gradient.detach().view(-1)[gradient.numel() // 2].item())

    @property
    def kind(self) -> int:
        """See ``Variable``."""
        if not self.parameter.requires_grad:
            return FROZEN
        gradient = self.parameter.grad
        if gradient is None or self.filled:
            return ABSENT
        return DENSE if gradient.layout is torch.strided or self.bucket.reducer.sparse_as_dense else SPARSE

    @property
    def is_missing(self) -> bool:
        """See ``Variable``."""
        return self.filled or self.parameter.grad is None

    @property
    def is_trained(self) -> bool:
        """See ``Variable``."""
        return self.parameter.requires_grad

    @property
    def nbytes(self) -> int:
        """See ``Variable``."""
        return self.parameter.numel() * self.parameter.element_size()

    @property
    def version(self) -> int:
        """See ``Variable``."""
        return self.parameter._version

    def usual_gradient(self) -> torch.Tensor | None:
        """See ``Variable``."""
        parameter = self.parameter
        gradient = parameter.grad
        usual = gradient is not None and parameter.requires_grad and gradient.layout is torch.strided
        return gradient if usual else None

    def dense_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made dense where it is sparse, with memory of its own where it is an
        expanded view, zeros where there is none; the parameter holds it.
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
            self.remember()
        return gradient.detach() if gradient.requires_grad else gradient

    def take(self, reduced: torch.Tensor) -> None:
        """See ``Travelling``. The parameter may have the gradient of a later pass by now."""
        if self.sent is not None:
            self.sent.detach().copy_(reduced)

    def start_sparse(self, name: str) -> Callable[[], None]:
        """See ``Travelling``."""
        reductions = self.bucket.reducer.reductions
        before = self.parameter.grad if self.sent is None else self.sent  # dropped since, perhaps
        gradient = self._sparse(before)
        finish = ops.sparse_allreduce_async(gradient, name, reductions.op, reductions.process_set)

        def wait() -> None:
            reduced = finish().coalesce()
            if self.parameter.grad is before:  # not that of a later pass
                self.parameter.grad = reduced

        return wait

    def make_sparse(self) -> None:
        """See ``Variable``."""
        if self.parameter.grad is not None:
            self.parameter.grad = self._sparse(self.parameter.grad)

    def drop_gradient(self) -> None:
        """See ``Variable``."""
        self.parameter.grad = None

    def _sparse(self, gradient: torch.Tensor | None) -> torch.Tensor:
        """A gradient of the parameter, made sparse (rows of the first dimension) where it is dense or
        absent.
        """
        if gradient is None or self.filled:
            self.filled = True
            parameter = self.parameter
            indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
            values = parameter.detach().new_empty((0, *parameter.shape[1:]))
            gradient = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
        elif gradient.layout is torch.strided:
            gradient = gradient.to_sparse(1)
        return gradient.coalesce()
