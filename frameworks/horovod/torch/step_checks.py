"""The checks of ``common.training.step_checks`` in a torch optimizer, by public hooks of torch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from horovod.common.training.agreement import Agreement
from horovod.common.training.fingerprints import COLUMNS, WORD_BYTES, has_numpy, of_sums, whole_rows
from horovod.common.training.step_checks import Fingerprint, StepChecks

from .tensors import to_bytes

_ATTRIBUTE = "_horovod_step_checks"
_REMEDY = "hvd.broadcast_parameters(model.state_dict(), root_rank=0)"


def watch_steps(
    optimizer: torch.optim.Optimizer,
    wrapped: torch.optim.Optimizer,
    names: Mapping[torch.Tensor, str],
    agreement: Agreement,
) -> None:
    """Has ``optimizer`` make the checks of its steps; see ``common.training.step_checks``.

    Args:
        optimizer: one whose step makes the update, after the gradients were reduced.
        wrapped: the one that it was made of, which may be wrapped again: then the new checks count alone.
        names: of its parameters.
        agreement: what the ranks that train together know of it. Other threads may train others.
    """
    previous = wrapped.__dict__.pop(_ATTRIBUTE, None)
    if previous is not None:
        previous.remove()
    watched = [(names[p], p) for group in optimizer.param_groups for p in group["params"]]

    def label() -> str:
        return agreement.numbered(agreement.subject) if agreement.reached else ""

    checks = StepChecks(agreement.process_set, lambda: contents_of(_whole(watched)), label, _REMEDY)
    if not checks.is_over:
        wrapped.__dict__[_ATTRIBUTE] = Watch(optimizer, watched, checks)


def watch_of(wrapped: torch.optim.Optimizer) -> Watch | None:
    """What makes the checks of the optimizer that was made of ``wrapped``; None: nothing does."""
    return wrapped.__dict__.get(_ATTRIBUTE)


class Watch:
    """The hooks of one optimizer."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        watched: list[tuple[str, torch.Tensor]],
        checks: StepChecks,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._watched = watched
        self._checks = checks
        self._handles: list[Any] = [optimizer.register_step_pre_hook(self._before_step)]
        self._look_at(watched)

    def add(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """For parameters that have come into the groups: they are checked from now on."""
        self._watched += parameters
        self._look_at(parameters)

    def _look_at(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        if not self._checks.nonfinite:
            return
        own = weakref.ref(self._checks)  # parameters outlive optimizers
        looking = [
            parameter.register_hook(lambda gradient, name=name: _look(own(), name, gradient))
            for name, parameter in parameters
            if parameter.requires_grad
        ]
        weakref.finalize(self, _remove, looking).atexit = False
        self._handles += looking

    def remove(self) -> None:
        """Ends the checks."""
        _remove(self._handles)

    def leave_out(self) -> None:
        """For a rank that leaves the update out while others make theirs: they wait for it in their checks.
        The reason to leave it out is no complaint.
        """
        self._checks.forget()
        self._checks.before_update()

    def _before_step(self, stepping: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The hook; ``arguments`` begin with the optimizer. Returns others in their place, or None. The
        wrapped optimizer has the same hooks: its own steps are no steps of the ranks.
        """
        if stepping is not self._optimizer():
            return None
        closure = arguments[1] if len(arguments) > 1 else options.get("closure")
        if closure is None:
            self._before_update()
            return None
        self._checks.forget()  # of evaluations that a step before was left with
        self._checks.begin_step()
        return (arguments[0], self._checked(closure)), {}

    def _checked(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """``closure``, whose gradients are looked at when they are there: the first that it makes in a step,
        because the ranks need not evaluate it equally often.
        """
        first = True

        def evaluate() -> Any:
            nonlocal first
            loss = closure()
            if first:
                first = False
                self._checks.check_gradients()
            return loss

        return evaluate

    def _before_update(self) -> None:
        # A GradScaler leaves out steps whose gradients are not finite; what is finite now is a later step's.
        if self._checks.noted and all(
            kind_of(parameter.grad) is None for _, parameter in self._watched if parameter.grad is not None
        ):
            self._checks.forget()
        self._checks.before_update()


def _remove(handles: Sequence[Any]) -> None:
    for handle in handles:
        handle.remove()


def _look(checks: StepChecks | None, name: str, gradient: torch.Tensor) -> None:
    if checks is None or checks.noted:
        return
    kind = kind_of(gradient)
    if kind is not None:
        checks.note(name, kind)


def kind_of(gradient: torch.Tensor) -> str | None:
    """What of it is not finite: "NaN", "Inf" or, if nothing, None."""
    values = gradient.detach()
    if values.layout is not torch.strided:
        values = values.coalesce().values()
    if bool(torch.isfinite(values).all()):
        return None
    return "NaN" if bool(torch.isnan(values).any()) else "Inf"


def _whole(parameters: Sequence[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Those that a rank has for itself and whole, in the order of their names, which ranks share. Those of
    other classes may be parts, as DTensor's are and those of FSDP, or not made yet.
    """
    plain = (torch.Tensor, torch.nn.Parameter)
    whole = [(name, p) for name, p in parameters if type(p) in plain and p.device.type != "meta"]
    return sorted(whole, key=lambda named: named[0])


def contents_of(
    parameters: Sequence[tuple[str, torch.Tensor]],
) -> Iterator[tuple[str, memoryview | Fingerprint]]:
    """The bytes of tensors, by name. Of large ones on a GPU, or without numpy, the fingerprint, which torch
    makes there; on the CPU numpy is several times faster.
    """
    for name, parameter in parameters:
        data = parameter.detach().contiguous().reshape(-1).view(torch.uint8)
        if not whole_rows(data.numel()):
            yield name, memoryview(to_bytes(data.cpu()))
        elif data.device.type == "cpu" and has_numpy():
            yield name, memoryview(data.numpy())  # type: ignore[arg-type]  # a buffer to Python
        else:
            yield name, _fingerprint(data)


def _fingerprint(data: torch.Tensor) -> Fingerprint:
    if data.storage_offset() % WORD_BYTES:  # part of a flat tensor of smaller numbers
        data = data.clone()
    folded = whole_rows(data.numel())
    words = data[:folded].view(torch.int32).view(-1, COLUMNS)
    sums = words.sum(0, dtype=torch.int32).cpu().view(torch.uint8)
    return Fingerprint(of_sums(to_bytes(sums), to_bytes(data[folded:].cpu())))
