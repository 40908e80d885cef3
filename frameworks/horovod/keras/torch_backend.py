"""torch as the backend of the Keras parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import torch

import horovod.torch as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.backend import REMEDY, Backend, Plan
from horovod.common.collective.compression import resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training import step_checks
from horovod.common.training.agreement import Reduced, agree_on_gradients, described, own_name
from horovod.common.training.gradient_buckets import cut_into_buckets
from horovod.common.training.gradient_options import GradientSettings, group_name, takes_part
from horovod.common.training.gradient_reductions import GradientReductions, Steps, finish_all
from horovod.common.training.gradient_variables import Travelling
from horovod.common.training.present_gradients import OF_THIS_RANK, PresentGradients
from horovod.torch.elastic.state import settle
from horovod.torch.layouts import overlaps
from horovod.torch.operations import ops
from horovod.torch.step_checks import contents_of, kind_of


class TorchBackend(Backend):
    """See ``horovod._keras.backend.Backend``."""

    name = "torch"
    hvd = hvd

    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """See ``Backend``."""
        keras3_optimizer.check_is_of(keras, optimizer, "torch")
        return keras3_optimizer.distribute(optimizer, plan, keras)

    @torch.compiler.disable
    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """All travel at once. Where torch keeps them as gradients of parameters, they are overwritten."""
        if not takes_part(plan.settings.process_set):
            return list(gradients)
        reduced = described(variables)
        present = agree_on_gradients(plan.name, plan.settings, reduced, variables, _identity)
        _check(gradients, variables, reduced, plan)
        own = {_slot_of(place, each): each for place, each in enumerate(gradients) if each is not None}
        return _Exchange(own, variables, plan).results(present) if variables else []

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        tensors = [_tensor(variable).detach() for variable in variables]
        hvd.broadcast_parameters(tensors, root_rank, process_set)

    def settle(self) -> None:
        """See ``Backend``."""
        settle()

    def tensor(self, value: Any) -> Any:
        """A variable stands for its value, of which the result is no function."""
        tensor = keras.ops.convert_to_tensor(value)
        return tensor.detach() if isinstance(value, keras.Variable) else tensor


class _Gradient(Travelling[Any]):
    """The gradient of one slot. ``overwritable``: torch keeps it as that of a parameter."""

    def __init__(
        self, slot: int, name: str, gradient: Any, overwritable: bool, settings: GradientSettings
    ) -> None:
        self.name = name
        self.is_sparse = bool(slot % 2)
        self.value = gradient
        self._overwritable = overwritable
        self._settings = settings

    def dense_gradient(self) -> Any:
        """See ``Travelling``."""
        if not self._overwritable or overlaps(self.value):
            self.value = self.value.clone(memory_format=torch.contiguous_format)
        return self.value

    def take(self, reduced: Any) -> None:
        """See ``Travelling``."""
        self.value = reduced

    def start_sparse(self, name: str) -> Callable[[], None]:
        """See ``Travelling``."""
        settings = self._settings
        finish = hvd.sparse_allreduce_async(self.value, f"{name}.sparse", settings.op, settings.process_set)
        return lambda: self.take(finish())


class _Exchange:
    """The gradients of one step on their way, by slot: see ``common.training.present_gradients``. Each
    variable has two, for a dense gradient and for a sparse one. ``own``: those of this rank.
    """

    def __init__(self, own: dict[int, Any], variables: Sequence[Any], plan: Plan) -> None:
        self._settings = plan.settings
        self._name = plan.name
        self._own = _made_dense(own) if plan.settings.sparse_as_dense else own
        self._variables = variables
        self._reductions = _reductions(plan)
        self._under_way: list[Steps] = []

    def results(self, present: PresentGradients) -> list[Any]:
        """For each variable its reduced gradient, or None where no rank has any. Raises the first error after
        all has come to an end.
        """
        sent = present.reduce(self._own, 2 * len(self._variables), self._start)
        finish_all(self._under_way)
        found: list[Any] = [None] * len(self._variables)
        for slot, gradient in sorted(sent.items()):  # dense ones come first
            before = found[slot // 2]
            found[slot // 2] = gradient.value if before is None else before + gradient.value
        return found

    def _start(self, slots: Iterable[int]) -> dict[int, _Gradient]:
        """Starts to reduce these, with zeros for those that this rank lacks."""
        new = {slot: self._gradient(slot) for slot in sorted(slots)}
        buckets = cut_into_buckets(
            [slot for slot in new if not slot % 2],
            self._settings.groups,
            lambda slot: (new[slot].value.dtype, new[slot].value.device),
            _identity,
            lambda slot: _identity(self._variables[slot // 2]),
        )
        for bucket in [*([slot] for slot in new if slot % 2), *buckets]:
            members = [new[slot] for slot in bucket]
            steps = self._reductions.send(group_name([each.name for each in members]), members)
            next(steps)
            self._under_way.append(steps)
        return new

    def _gradient(self, slot: int) -> _Gradient:
        variable = self._variables[slot // 2]
        name = f"{self._name}.{slot // 2}.{own_name(variable)}"
        own = self._own.get(slot)
        value = _absent(slot, variable) if own is None else own
        overwritable = own is None or _tensor(variable).grad is own
        return _Gradient(slot, name, value, overwritable, self._settings)


@functools.lru_cache(maxsize=64)  # of the optimizers that still run; an evicted one makes its own anew
def _reductions(plan: Plan) -> GradientReductions[Any]:
    resolve_plain_compression(plan.settings.compression, "the gradients of Keras")
    return GradientReductions(ops, plan.settings)


def _slot_of(place: int, gradient: Any) -> int:
    return 2 * place + int(gradient.is_sparse)


def _made_dense(own: dict[int, Any]) -> dict[int, Any]:
    return {slot & ~1: gradient.to_dense() if slot % 2 else gradient for slot, gradient in own.items()}


def _absent(slot: int, variable: Any) -> Any:
    """A gradient for a slot that this rank lacks, which changes no sum."""
    tensor = _tensor(variable).detach()
    if not slot % 2:
        return torch.zeros_like(tensor)
    rows = torch.zeros((1, 0), dtype=torch.int64, device=tensor.device)
    return torch.sparse_coo_tensor(rows, tensor[:0], tensor.shape)


def _check(
    gradients: Sequence[Any], variables: Sequence[Any], reduced: tuple[Reduced, ...], plan: Plan
) -> None:
    """The checks of a step; see ``common.training.step_checks``."""
    checks = step_checks.of_steps(plan.settings.process_set, plan.name, reduced, REMEDY)
    if checks is None:
        return
    shared = [variable for variable in variables if variable is not OF_THIS_RANK]
    if checks.nonfinite and not plan.loss_is_scaled:
        pairs = zip(variables, gradients, strict=True)
        checks.note_first((v.path, kind_of(gradient)) for v, gradient in pairs if gradient is not None)
    checks.before_update(contents_of([(v.path, _tensor(v)) for v in shared]))


def _tensor(variable: Any) -> Any:
    """The torch tensor inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "value", None)
    return variable if inner is None else inner


def _identity(variable: Any) -> int:
    return id(_tensor(variable))


backend = TorchBackend()
