"""One parameter's part in the reduction of gradients, and the options that it shares with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from horovod.common.compression import is_stateful
from horovod.common.exchange import Exchange
from horovod.common.process_sets import ProcessSet
from horovod.torch.operations import ops
from horovod.torch.tensors import overlaps


class Reduction:
    """How the gradients of one optimizer are reduced. While ``paused``, backward passes accumulate only."""

    def __init__(
        self,
        op: int,
        predivide: float,
        compressor: Any,
        sparse_as_dense: bool,
        passes: int,
        process_set: ProcessSet,
    ) -> None:
        self.op = op
        self.prescale = 1.0 / predivide
        self.postscale = predivide
        self.compressor = compressor
        self.exchange = Exchange(ops, op, process_set) if is_stateful(compressor) else None
        self.sparse_as_dense = sparse_as_dense or self.exchange is not None
        self.passes = passes
        self.process_set = process_set
        self.paused = False

    def same_as(self, other: Reduction) -> bool:
        """Whether gradients reduced in the ``other`` way come out as in this one."""
        names = ("op", "prescale", "compressor", "sparse_as_dense", "passes", "process_set")
        return all(getattr(self, name) == getattr(other, name) for name in names)


class GradientHook:
    """Called by autograd after each accumulation of the gradient of ``parameter``; calls ``due`` when it is
    due.

    ``sparse``: what the ranks agreed on for this gradient, None while they never had to. ``filled``: the
    gradient is zeros in place of one that this step did not make.
    """

    __slots__ = ("_compressor", "_due", "filled", "name", "parameter", "passes_left", "reduction", "sparse")

    def __init__(
        self, name: str, parameter: torch.Tensor, reduction: Reduction, due: Callable[[], None]
    ) -> None:
        self.name = name
        self.parameter = parameter
        self.reduction = reduction
        self.passes_left = reduction.passes
        self.sparse: bool | None = None
        self.filled = False
        self._compressor: Any = None
        self._due = due

    def __call__(self, parameter: torch.Tensor) -> None:
        left = self.passes_left - 1
        if left < 0:
            raise AssertionError(
                f"The gradient of {self.name!r} was computed more than backward_passes_per_step times before "
                "optimizer.step() or optimizer.synchronize(). Increase backward_passes_per_step to "
                "accumulate gradients locally."
            )
        if self.reduction.paused:
            return
        self.passes_left = left
        if left == 0:
            self._due()

    @property
    def gradient_is_sparse(self) -> bool:
        """Whether the present gradient has a layout that cannot be sent as it is."""
        gradient = self.parameter.grad
        return gradient is not None and gradient.layout is not torch.strided

    @property
    def compressor(self) -> Any:
        """The stateful compressor that belongs to this gradient."""
        if self._compressor is None:
            self._compressor = self.reduction.compressor()
        return self._compressor

    def dense_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made dense where it is sparse, with memory of its own where it is an
        expanded view, zeros where there is none; the parameter holds what is returned.
        """
        gradient = self.parameter.grad
        if gradient is None:
            self.filled = True
            gradient = self.parameter.grad = torch.zeros_like(self.parameter)
        elif gradient.layout is not torch.strided:
            gradient = self.parameter.grad = gradient.to_dense()
        elif overlaps(gradient):
            gradient = self.parameter.grad = gradient.contiguous()
        return gradient

    def unfill(self) -> None:
        """The zeros have travelled. A parameter that is not trained must not be left with a gradient."""
        self.filled = False
        if not self.parameter.requires_grad:
            self.parameter.grad = None

    def sparse_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made sparse (rows of the first dimension) where it is dense or absent."""
        gradient = self.parameter.grad
        if gradient is None or self.filled:
            parameter = self.parameter
            indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
            values = parameter.detach().new_empty((0, *parameter.shape[1:]))
            gradient = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
        elif gradient.layout is torch.strided:
            gradient = gradient.to_sparse(1)
        return gradient.coalesce()

    def refuse_change(self, gradient: torch.Tensor) -> None:
        """For a gradient whose version has changed while it was being reduced: raises."""
        if gradient.untyped_storage().nbytes() != gradient.nbytes:
            return  # part of a larger tensor, of which another part may have changed
        raise RuntimeError(
            f"The gradient of {self.name!r} was changed between loss.backward() and optimizer.step(), while "
            "it was being reduced. To clip or to unscale gradients, call optimizer.synchronize() first, and "
            "optimizer.step() within optimizer.skip_synchronize()."
        )

    def forget(self) -> None:
        """For a new job, whose other ranks know nothing of what was agreed on or left out."""
        self.sparse = None
        self._compressor = None
