"""A gradient in its step: the hook that autograd calls for it, and how the gradients of one optimizer are
reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from horovod.common.collective.compression import is_stateful
from horovod.common.collective.exchange import Exchange
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReduction
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.layouts import laid_out_as, overlaps
from horovod.torch.operations import ops


class Reduction:
    """How the gradients of one optimizer are reduced, and the state of the present step.

    While ``paused``, backward passes accumulate only; ``held_back``: one has done so. ``begin`` is to be
    called before the first gradient of a step is submitted (``begin_early``: as soon as it is due); ``begun``
    says whether it was, ``refusal`` why nothing may be submitted. ``thawed``: parameters that were frozen and
    no longer are, of which ``take_news`` tells once a step; ``froze``: the ranks have agreed that some are
    frozen now. ``changed``: the gradients that the program has changed while they were being reduced;
    ``failed``: this rank's backward pass has failed.
    """

    def __init__(self, settings: GradientSettings, sparse_again: bool = False) -> None:
        self.op = settings.op
        self.prescale = settings.prescale
        self.compressor = settings.compression
        self.process_set = settings.process_set
        stateful = is_stateful(self.compressor)
        self.exchange = Exchange(ops, self.op, self.process_set) if stateful else None
        self.sparse_as_dense = settings.sparse_as_dense or stateful
        self.sparse_again = sparse_again and self.sparse_as_dense
        self.passes = settings.backward_passes_per_step
        self.how = GradientReduction(self.op, settings.prescale, settings.postscale, self.process_set)
        self.paused = False
        self.held_back = False
        self.prefix = "DistributedOptimizer"
        self.begin: Callable[[], None] = lambda: None
        self.begun = False
        self.begin_early = False
        self.refusal: Exception | None = None
        self.froze = False
        self.changed: list[str] = []
        self.failed = False
        self.thawed: list[str] = []
        self._has_news = False

    def same_as(self, other: Reduction) -> bool:
        """Whether gradients reduced in the ``other`` way come out as in this one."""
        names = ("op", "prescale", "compressor", "sparse_as_dense", "passes", "process_set")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def note_thawed(self, names: list[str]) -> None:
        """Parameters are trained from this step on: the next bucket that is submitted tells the others."""
        self.thawed = names
        self._has_news = bool(names)

    def end(self) -> None:
        """The step is over."""
        self.begun = self.failed = self.held_back = False
        self.changed = []
        self.note_thawed([])

    def take_news(self) -> bool:
        """Whether the other ranks must be told of ``thawed``; True once."""
        news, self._has_news = self._has_news, False
        return news


@methods_outside_of_graphs
class GradientHook:
    """Called by autograd after each accumulation of the gradient of ``parameter``; calls ``due`` when it is
    due.

    ``sparse``: what the ranks agreed on for this gradient, None while they never had to. ``trained``: whether
    it requires a gradient, as the ranks know. ``filled``: the gradient is zeros in place of one that this
    step did not make.
    """

    __slots__ = (
        "_compressor",
        "_due",
        "filled",
        "name",
        "parameter",
        "passes_left",
        "reduction",
        "registration",
        "sparse",
        "trained",
    )

    def __init__(
        self, name: str, parameter: torch.Tensor, reduction: Reduction, due: Callable[[], None]
    ) -> None:
        self.name = name
        self.parameter = parameter
        self.reduction = reduction
        self.passes_left = reduction.passes
        self.sparse: bool | None = None
        self.trained = True
        self.filled = False
        self.registration: torch.utils.hooks.RemovableHandle | None = None
        self._compressor: Any = None
        self._due = due

    def __call__(self, parameter: torch.Tensor) -> None:
        left = self.passes_left - 1
        if left < 0:
            raise AssertionError(
                f"The gradient of {self.name!r} was computed more than backward_passes_per_step times before "
                "optimizer.step() or optimizer.synchronize(). Increase backward_passes_per_step to "
                "accumulate gradients locally. After a backward pass that failed, call optimizer.zero_grad()."
            )
        if self.reduction.paused:
            self.reduction.held_back = True
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
            gradient = self.parameter.grad = laid_out_as(gradient.to_dense(), self.parameter)
        elif overlaps(gradient):
            gradient = self.parameter.grad = laid_out_as(gradient.contiguous(), self.parameter)
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

    def note_change(self, sent: torch.Tensor, version: int, changed: bool = False) -> None:
        """Notes whether the program has changed the gradient ``sent``, then of ``version``, while it was
        being reduced: in place, or by giving the parameter another one. ``changed``: it is known to have, in
        a way that torch does not count, such as ``sent.data.clamp_()``.
        """
        replaced = self.parameter.grad is not sent
        # A part of a larger tensor has a version in common with the other parts.
        if (
            replaced
            or changed
            or (sent._version != version and sent.untyped_storage().nbytes() == sent.nbytes)
        ):
            self.reduction.changed.append(self.name)

    def forget(self) -> None:
        """For a new job, whose other ranks know nothing of what was agreed on or left out."""
        self.sparse = None
        self._compressor = None
