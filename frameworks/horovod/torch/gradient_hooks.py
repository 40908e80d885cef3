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

_TOO_MANY_PASSES = (
    "The gradient of {name} was computed more than backward_passes_per_step times before optimizer.step() or "
    "optimizer.synchronize(), and is being reduced already. If several backward passes are to make one step, "
    "add up their losses, make the earlier passes within optimizer.no_sync(), or give "
    "DistributedOptimizer(backward_passes_per_step=...) their number. If the pass before belonged to another "
    "optimizer's step, as in a GAN, drop its gradients by zero_grad() with set_to_none=True. With "
    "synchronize_in_backward=True each pass is reduced as DistributedDataParallel does it. After a backward "
    "pass that failed, call optimizer.zero_grad()."
)


class Reduction:
    """How the gradients of one optimizer are reduced, and the state of the present step.

    While ``paused``, backward passes accumulate only; ``held_back``: one has done so. ``begin`` is to be
    called when the first gradient of a step is due; ``begun`` says whether it was, ``refusal`` why nothing
    may be submitted. ``drop`` is to be called when the program has dropped gradients that are being reduced.
    ``thawed``: parameters that were frozen and no longer are, of which ``take_news`` tells once a step;
    ``froze``: the ranks have agreed that some are frozen now. ``partial``: they have agreed that some have no
    gradient in every step on every rank. ``changed``: the gradients that the program has changed while they
    were being reduced; ``given_up``: why this rank makes no step of them, empty if it does.
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
        self.drop: Callable[[], bool] = lambda: False
        self.refusal: Exception | None = None
        self.froze = False
        self.partial = False
        self.changed: list[str] = []
        self.given_up = ""
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
        self.begun = self.held_back = False
        self.given_up = ""
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
    it requires a gradient, as the ranks know. ``partial``: they know that some rank had no gradient in some
    step. ``filled``: the gradient is zeros in place of one that this step did not make. ``sent``: the
    gradient that is being reduced, or about to be, which was then of ``_version``.
    """

    __slots__ = (
        "_compressor",
        "_due",
        "_version",
        "filled",
        "name",
        "parameter",
        "partial",
        "passes_left",
        "reduction",
        "registration",
        "sent",
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
        self.partial = False
        self.filled = False
        self.sent: torch.Tensor | None = None
        self._version = 0
        self.registration: torch.utils.hooks.RemovableHandle | None = None
        self._compressor: Any = None
        self._due = due

    def __call__(self, parameter: torch.Tensor) -> None:
        left = self.passes_left - 1
        if left < 0:
            if parameter.grad is self.sent or not self.reduction.drop():
                raise AssertionError(_TOO_MANY_PASSES.format(name=repr(self.name)))
            left = self.passes_left - 1
        if self.reduction.paused:
            self.reduction.held_back = True
            return
        self.passes_left = left
        if left == 0:
            self.remember()
            self._due()

    def remember(self) -> None:
        """Remembers the gradient, which the program must not change from now on."""
        self.sent = gradient = self.parameter.grad
        if gradient is not None:
            self._version = gradient._version

    @property
    def holds_sent(self) -> bool:
        """Whether the parameter still has the gradient that was remembered."""
        return self.sent is not None and self.parameter.grad is self.sent

    @property
    def missing(self) -> bool:
        """Whether this step made no gradient."""
        return self.filled or self.parameter.grad is None

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
        if gradient is not self.sent:
            self.remember()
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
            self.filled = True
            parameter = self.parameter
            indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
            values = parameter.detach().new_empty((0, *parameter.shape[1:]))
            gradient = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
        elif gradient.layout is torch.strided:
            gradient = gradient.to_sparse(1)
        return gradient.coalesce()

    def note_change(self, changed: bool) -> None:
        """Notes whether the program has changed the gradient since it was remembered: in place, or by giving
        the parameter another one. ``changed``: it is known to have, in a way that torch does not count, such
        as ``p.grad.data.clamp_()``.
        """
        sent = self.sent
        if sent is None:
            return
        replaced = self.parameter.grad is not sent
        # A part of a larger tensor has a version in common with the other parts.
        if (
            replaced
            or changed
            or (sent._version != self._version and sent.untyped_storage().nbytes() == sent.nbytes)
        ):
            self.reduction.changed.append(self.name)

    def forget(self) -> None:
        """For a new job, whose other ranks know nothing of what was agreed on or left out."""
        self.sparse = None
        self.partial = False
        self._compressor = None
