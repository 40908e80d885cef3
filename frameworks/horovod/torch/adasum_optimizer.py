"""The optimizer for op=Adasum: every rank makes its own step, and the steps are added up adaptively."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from horovod.common.exceptions import TensorMismatchError
from horovod.common.process_sets import check_process_set
from horovod.common.training.agreement import Agreement, at_construction
from horovod.common.training.differences import compare
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReductions, finish_all
from horovod.common.training.gradient_variables import Travelling
from horovod.torch.gradient_reducer import cut_parameters
from horovod.torch.layouts import laid_out_as
from horovod.torch.operations import ops
from horovod.torch.step_checks import watch_of
from horovod.torch.wrapping import SUBJECT, NamedParameters, WrappedOptimizer

_STEP = "optimizer.step(): comparison of what it changes"  # reserved; reports show it


class DistributedAdasumOptimizer(WrappedOptimizer):
    """``step`` makes the wrapped optimizer's step on this rank's gradients; the *delta* of each parameter,
    its new value less its old one, is reduced by Adasum and added to the old value.

    The gradients themselves are never reduced, so they may be clipped and unscaled at any time before
    ``step``, and several backward passes simply accumulate. The deltas leave together after the local step,
    because an optimizer may couple its parameters. A parameter without a gradient takes part with the delta
    that the local step gave it, normally zeros. The optimizer's state stays local.
    """

    def _distribute(self, parameters: NamedParameters, settings: GradientSettings, copied: bool) -> None:
        self._facts = settings.facts()
        self._agreement = Agreement(SUBJECT, settings.process_set)
        if at_construction() and not copied:
            self._agree()
        self._buckets = cut_parameters(parameters, settings.groups)
        self._reductions = GradientReductions(ops, settings)
        self._sparse_as_dense = settings.sparse_as_dense
        self._process_set = settings.process_set

    def synchronize(self) -> None:
        """Nothing to wait for: what is reduced are the steps."""

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """AssertionError: a step that is not reduced would leave every rank with another model."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to hold back: backward passes never communicate."""
        return contextlib.nullcontext()

    # GradScaler leaves it to such an optimizer to unscale, and to leave out the step where a gradient is not
    # finite; otherwise it would not call step on that rank, and the others would wait for it.
    @property
    def _step_supports_amp_scaling(self) -> bool:
        return True

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The local step, then the reduction of all deltas; when that fails, the parameters have their old
        values. Before it the ranks compare which parameters they train. A rank whose gradients GradScaler
        found not to be finite takes part with zeros.
        """
        self._take_in()
        if not self._agreement.reached:
            self._agree()
        self._agree_on_step()
        prefix = self._agreement.numbered(SUBJECT) + ".adasum."
        deltas = {
            prefix + name: [_Delta(each, p) for each, p in members if _is_trained(p)]
            for name, members in self._buckets
        }
        moving = [delta for members in deltas.values() for delta in members]
        loss = self._local_step(closure)
        send = self._reductions.send
        with torch.no_grad():
            try:
                finish_all([send(name, members) for name, members in deltas.items() if members])
            except Exception:
                for delta in moving:
                    delta.undo()
                raise
            for delta in moving:
                delta.apply()
        self._note_step()
        return loss

    # The wrapped step runs the hooks registered on step; marked, this one does not run them again.
    step.hooked = True  # type: ignore[attr-defined]

    def _agree(self) -> None:
        self._agreement.reach({**self._facts, **self._described()})

    def _agree_on_step(self) -> None:
        """Raises, on all ranks, when they do not train the same parameters, or one cannot make its step."""
        problem = None
        try:
            self._check_layouts()
        except ValueError as error:
            problem = str(error)
        trained = {
            repr(name): "trained" for _, members in self._buckets for name, p in members if _is_trained(p)
        }
        name = f"{_STEP}.{self._agreement.numbered(SUBJECT)}"
        difference = compare(trained, name, check_process_set(self._process_set), problem)
        if difference is not None:
            raise TensorMismatchError(
                f"The ranks do not train the same parameters: {difference} Add and freeze parameters in the "
                "same step on all ranks."
            )

    def _take_in(self) -> None:
        """Of parameters that have come into the groups, the deltas are reduced one by one."""
        self._buckets += cut_parameters(self._newcomers(), None)

    def _check_layouts(self) -> None:
        for name, parameter in (member for _, members in self._buckets for member in members):
            gradient = parameter.grad
            if gradient is not None and gradient.layout is not torch.strided:
                if not self._sparse_as_dense:
                    raise ValueError(
                        f"The gradient of {name!r} is sparse, which op=hvd.Adasum cannot reduce; give "
                        "DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
                    )
                parameter.grad = laid_out_as(gradient.to_dense(), parameter)

    def _local_step(self, closure: Callable[[], Any] | None) -> Any:
        own = self.__dict__
        if "found_inf" not in own or own.get("_step_supports_amp_scaling"):
            return super().step() if closure is None else super().step(closure)  # type: ignore[misc]
        # GradScaler has left them for this step, and will delete them. The wrapped step must not see them.
        found_inf, scale = own["found_inf"], own["grad_scale"]
        if float(found_inf) != 0:
            if watch := watch_of(self._wrapped):
                watch.leave_out()
            return None
        self._unscale(scale)
        self.found_inf = self.grad_scale = None
        try:
            return super().step()  # type: ignore[misc]
        finally:
            self.found_inf, self.grad_scale = found_inf, scale

    def _unscale(self, scale: torch.Tensor | None) -> None:
        """``scale`` None: the program has done it."""
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        for gradient in gradients if scale is not None else ():
            if gradient is not None:
                gradient.div_(scale)


def _is_trained(parameter: torch.Tensor) -> bool:
    return parameter.requires_grad or parameter.grad is not None


class _Delta(Travelling[torch.Tensor]):
    """What one step changes in a parameter. Made before the step."""

    is_sparse = False

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self._parameter = parameter
        self._old = parameter.detach().clone()
        self._delta = self._old

    def dense_gradient(self) -> torch.Tensor:
        """See ``Travelling``."""
        self._delta = self._parameter.detach() - self._old
        return self._delta

    def take(self, reduced: torch.Tensor) -> None:
        """See ``Travelling``."""
        self._delta = reduced

    def apply(self) -> None:
        """Makes the parameter its old value and the reduced delta."""
        self._parameter.copy_(self._old.add_(self._delta))

    def undo(self) -> None:
        """Makes the parameter its old value."""
        self._parameter.copy_(self._old)
