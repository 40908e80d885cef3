"""The optimizer that averages gradients over all ranks while the backward pass still runs."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from horovod.common.basics import size
from horovod.common.compression import Compressor, resolve_compression
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Average, resolve_op
from horovod.torch.compression import Compression
from horovod.torch.gradient_groups import GradientGroup, Reduction
from horovod.torch.grouping import check_names, group_parameters

_NAME = "DistributedOptimizer."


class _DistributedOptimizer:
    """Placed before the wrapped optimizer's class; the instance shares the wrapped one's groups and state."""

    _base: type[torch.optim.Optimizer]

    def _distribute(
        self,
        optimizer: torch.optim.Optimizer,
        reduction: Reduction,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
        groups: int | Sequence[Sequence[torch.Tensor]] | None,
    ) -> None:
        names = check_names(optimizer.param_groups, named_parameters)
        self.__dict__.update(optimizer.__dict__)
        # A learning rate schedule has put its counter around the step of the wrapped optimizer.
        self.__dict__.pop("step", None)
        self._reduction = reduction
        self._synchronized = False
        self._should_synchronize = True
        self._gradient_groups: list[GradientGroup] = []
        self._frozen: list[tuple[str, torch.Tensor]] = []
        if size() == 1 and os.environ.get("HOROVOD_ELASTIC") != "1":
            self._active = False
            return
        self._active = True
        parameters = [(names[id(p)], p) for group in self.param_groups for p in group["params"]]
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        trained = [(name, p) for name, p in parameters if p.requires_grad]
        for name, members in group_parameters(trained, groups):
            self._hook(name, members)

    def _hook(self, name: str, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        group = GradientGroup(_NAME + name, parameters, self._reduction)
        self._gradient_groups.append(group)
        for hook in group.members:
            registered = hook.parameter.register_post_accumulate_grad_hook(hook)
            # Otherwise the parameters would go on reporting to an optimizer that is gone.
            weakref.finalize(self, registered.remove).atexit = False

    def _hook_thawed(self) -> None:
        """Parameters that were frozen when the optimizer was made and are trained by now."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                self._hook(name, [(name, parameter)])
        self._frozen = [(name, p) for name, p in self._frozen if not p.requires_grad]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters to train, as the wrapped optimizer does; their gradients are reduced one by one."""
        super().add_param_group(param_group)  # type: ignore[misc]
        if not self._active:
            return
        index = len(self.param_groups) - 1
        added = self.param_groups[index]["params"]
        self._frozen += [(f"added.{index}.{position}", p) for position, p in enumerate(added)]
        self._hook_thawed()

    @staticmethod
    def find_duplicates(lst: Iterable[Any]) -> set[Any]:
        """The items that occur more than once."""
        seen: set[Any] = set()
        return {item for item in lst if item in seen or seen.add(item)}  # type: ignore[func-returns-value]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are reduced."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._reduction.passes = passes
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
            first_error: Exception | None = None
            for group in self._gradient_groups:
                group.submit_incomplete()
            for group in self._gradient_groups:
                try:
                    group.complete()
                except Exception as error:
                    first_error = first_error or error
            if first_error is not None:
                raise first_error
        self._synchronized = True

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
            return super().step(self._reducing(closure))  # type: ignore[misc]
        if self._should_synchronize:
            self._synchronize_once()
        self._synchronized = False
        return super().step()  # type: ignore[misc]

    # The wrapped step runs the hooks registered on step; marked, this one does not run them again.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronize_once(self) -> None:
        if self._synchronized and not any(group.in_flight for group in self._gradient_groups):
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). The gradients are not reduced again; use the context to say so.",
                stacklevel=3,
            )
        else:
            self.synchronize()

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
        if any(group.in_flight for group in self._gradient_groups):
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(set_to_none=set_to_none)  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the wrapped optimizer's. Waits for gradients being reduced, and expects a full step's passes
        again.
        """
        for group in self._gradient_groups:
            with contextlib.suppress(Exception):  # of a step that the loaded state makes pointless
                group.complete()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy or a pickle is the wrapped optimizer: hooks belong to this process's parameters. Wrap it
        again.
        """
        return (_bare, (self._base,), self.__getstate__())  # type: ignore[attr-defined]


def _bare(base: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """An instance that unpickling then gives its state."""
    return base.__new__(base)


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
    Without it the order of the parameters is their name. ``backward_passes_per_step``: how many gradients are
    summed up locally before they travel. ``gradient_predivide_factor`` f: gradients are divided by f before
    they are added up and by size / f afterwards. ``groups``: a number of groups, or lists of parameters, that
    travel as one operation each (``num_groups`` is its deprecated form). ``sparse_as_dense``: makes sparse
    gradients dense first.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`.", DeprecationWarning, stacklevel=2
        )
        groups = num_groups if groups is None else groups
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    check_process_set(process_set)
    reduction = Reduction(
        resolve_op(op),
        1.0 / gradient_predivide_factor,
        gradient_predivide_factor,
        resolve_compression(compression),
        sparse_as_dense,
        backward_passes_per_step,
    )
    base = type(optimizer)
    namespace = {
        "_base": base,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    distributed = type(base.__name__, (_DistributedOptimizer, base), namespace)
    wrapped = distributed.__new__(distributed)
    wrapped._distribute(optimizer, reduction, named_parameters, groups)
    return wrapped
