"""The optimizer that averages gradients over all ranks while the backward pass still runs."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from horovod.common.compression import Compressor, resolve_compression, resolve_plain_compression
from horovod.common.gradient_options import check_passes, check_predivide, resolve_groups, takes_part
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average, resolve_op
from horovod.torch import live_groups
from horovod.torch.adasum_optimizer import DistributedAdasumOptimizer
from horovod.torch.compression import Compression
from horovod.torch.gradient_groups import GradientGroup, complete_all
from horovod.torch.gradient_hooks import Reduction
from horovod.torch.grouping import NamedParameters, group_parameters
from horovod.torch.step_checks import watch_steps
from horovod.torch.wrapping import WrappedOptimizer, subclass_of


class _DistributedOptimizer(WrappedOptimizer):
    """Reduces gradients while the backward pass makes them; ``step`` waits for them."""

    def _distribute(
        self,
        optimizer: torch.optim.Optimizer,
        reduction: Reduction,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
        groups: int | Sequence[Sequence[torch.Tensor]] | None,
        active: bool,
    ) -> None:
        parameters = self._adopt(optimizer, named_parameters)
        self._reduction = reduction
        self._synchronized = False
        self._scaled = False  # synchronized on behalf of GradScaler
        self._should_synchronize = True
        self._gradient_groups: list[GradientGroup] = []
        self._rounds_seen: dict[GradientGroup, int] = {}  # of the groups shared with other optimizers
        self._active = active
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad] if active else []
        if active:
            weakref.finalize(self, live_groups.release, self._gradient_groups).atexit = False
            self._hook([(name, p) for name, p in parameters if p.requires_grad], groups)

    def _hook(
        self, parameters: NamedParameters, groups: int | Sequence[Sequence[torch.Tensor]] | None
    ) -> None:
        found = live_groups.share(parameters, self._reduction, self._gradient_groups)
        self._rounds_seen.update({group: group.rounds for group in found})
        self._gradient_groups += found
        own = [(name, p) for name, p in parameters if not live_groups.reduces(p)]
        self._gradient_groups += live_groups.make(group_parameters(own, groups), self._reduction)

    def _hook_thawed(self) -> None:
        """Parameters that were frozen when the optimizer was made and are trained by now."""
        thawed = [(name, p) for name, p in self._frozen if p.requires_grad]
        if thawed:
            self._frozen = [(name, p) for name, p in self._frozen if not p.requires_grad]
            self._hook(thawed, None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters to train, as the wrapped optimizer does; their gradients are reduced one by one."""
        added = self._added(param_group)
        if self._active:
            self._frozen += added
            self._hook_thawed()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are reduced."""
        check_passes(passes)
        self._reduction.passes = passes
        for group in self._gradient_groups:  # one that another optimizer made has settings of its own
            group.reduction.passes = passes
        for group in self._gradient_groups:
            if not group.in_flight:
                group.reset()

    def synchronize(self) -> None:
        """Waits until all gradients are reduced; ``step`` calls it, unless within ``skip_synchronize()``.

        Parameters that have no gradient take part with zeros. Raises the first error after all have been
        waited for.
        """
        if self._active:
            if self._frozen:
                self._hook_thawed()
            groups = self._not_yet_reduced() if live_groups.shared else self._gradient_groups
            for group in groups:
                group.submit_incomplete()
            try:
                complete_all(groups)
            finally:
                if live_groups.shared or self._rounds_seen:
                    self._note_rounds()
        self._synchronized = True

    def _not_yet_reduced(self) -> list[GradientGroup]:
        """All groups, less those that another optimizer has reduced since this one's last step: all that both
        use, or none, because a backward pass makes all of their gradients.
        """
        shared = [group for group in self._gradient_groups if group in live_groups.shared]
        touched = {id(group.reduction) for group in shared if group.touched}
        done = {
            group
            for group in shared
            if id(group.reduction) not in touched and group.rounds != self._rounds_seen.get(group, 0)
        }
        return [group for group in self._gradient_groups if group not in done]

    def _note_rounds(self) -> None:
        shared = live_groups.shared.intersection(self._gradient_groups)
        self._rounds_seen = {group: group.rounds for group in shared}

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward passes accumulate gradients locally, and do not count for
        ``backward_passes_per_step``. The next backward pass outside, or ``step``, reduces the sum.
        """
        reductions = {id(group.reduction): group.reduction for group in self._gradient_groups}.values()
        before = [reduction.paused for reduction in reductions]
        for reduction in reductions:
            reduction.paused = True
        try:
            yield
        finally:
            for reduction, paused in zip(reductions, before, strict=True):
                reduction.paused = paused

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, ``step`` takes the gradients as they are: for use after ``synchronize``, to clip them,
        say.
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, then makes the wrapped optimizer's step.

        With a ``closure`` that recomputes loss and gradients, they are reduced each time after it has run.
        """
        if closure is not None:
            loss = super().step(self._reducing(closure))  # type: ignore[misc]
        else:
            if self._should_synchronize:
                self._synchronize_once()
            self._synchronized = self._scaled = False
            loss = super().step()  # type: ignore[misc]
        self._note_step()
        return loss

    # The wrapped step runs the hooks registered on step; marked, this one does not run them again.
    step.hooked = True  # type: ignore[attr-defined]

    # GradScaler.step asks for it before it looks at the gradients, so that is when they must be reduced.
    @property
    def _step_supports_amp_scaling(self) -> bool:
        if self._should_synchronize and not (self._synchronized and not self._in_flight()):
            self.synchronize()
            self._scaled = True
        return self.__dict__.get("_step_supports_amp_scaling", False)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def _in_flight(self) -> bool:
        return any(group.in_flight for group in self._gradient_groups)

    def _synchronize_once(self) -> None:
        if not self._synchronized or self._in_flight():
            self.synchronize()
        elif not self._scaled:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). The gradients are not reduced again; use the context to say so.",
                stacklevel=3,
            )

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def reduce_after() -> Any:
            loss = closure()
            if self._should_synchronize:
                self.synchronize()
            self._synchronized = False
            return loss

        return reduce_after

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's. AssertionError while gradients are being reduced."""
        if self._in_flight():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._synchronized = self._scaled = False
        super().zero_grad(set_to_none=set_to_none)  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the wrapped optimizer's. Waits for gradients being reduced, and expects a full step's passes
        again.
        """
        with contextlib.suppress(Exception):  # of a step that the loaded state makes pointless
            complete_all(self._gradient_groups)
        for group in self._gradient_groups:
            group.reset()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(state_dict)  # type: ignore[misc]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] | None = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wraps ``optimizer`` so that gradients are reduced over all ranks before each step.

    Each gradient leaves as soon as the backward pass has made it, so communication and computation overlap.
    The result is an optimizer of the same class, which shares parameter groups and state with ``optimizer``.

    ``named_parameters``: what ``model.named_parameters()`` gives; the names must be equal on all ranks.
    Without it the order of the parameters is their name. ``compression``: how gradients travel; sparse ones
    travel as they are. ``backward_passes_per_step``: how many gradients are summed up locally before they
    travel. ``gradient_predivide_factor`` f: gradients are divided by f before they are added up and by
    size / f afterwards. ``groups``: a number of groups, or lists of parameters, that travel as one operation
    each (``num_groups`` is its deprecated form). ``sparse_as_dense``: makes sparse gradients dense first.
    ``process_set``: the ranks that train together; on every other rank the optimizer does what ``optimizer``
    would.

    With ``op=hvd.Adasum`` the ranks' steps are combined instead of their gradients
    (``DistributedAdasumOptimizer``).

    A parameter that several such optimizers train is reduced once after each backward pass, for all of them;
    they need equal settings. With GradScaler, ``scaler.step(optimizer)`` works as it is; before
    ``scaler.unscale_(optimizer)`` call ``optimizer.synchronize()``, and make the step within
    ``optimizer.skip_synchronize()``.
    """
    check_predivide(op, gradient_predivide_factor)
    check_passes(backward_passes_per_step)
    groups = resolve_groups(groups, num_groups)
    if isinstance(optimizer, WrappedOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    op, compressor = resolve_op(op), resolve_compression(compression)
    active = takes_part(process_set)
    named = None if named_parameters is None else list(named_parameters)
    if op == Adasum and active:
        plain = resolve_plain_compression(compression, "the steps of op=hvd.Adasum")
        adaptive = subclass_of(DistributedAdasumOptimizer, optimizer)
        adaptive._distribute(optimizer, named, groups, plain, sparse_as_dense, process_set)
        watch_steps(adaptive, optimizer, named, process_set)
        return adaptive
    reduction = Reduction(
        op, gradient_predivide_factor, compressor, sparse_as_dense, backward_passes_per_step, process_set
    )
    wrapped = subclass_of(_DistributedOptimizer, optimizer)
    wrapped._distribute(optimizer, reduction, named, groups, active)
    if active:
        watch_steps(wrapped, optimizer, named, process_set)
    return wrapped
