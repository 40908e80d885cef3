"""torch as the backend of the Keras parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import torch

import horovod.torch as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.backend import REMEDY, Backend, Plan
from horovod.common.collective.compression import resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training import step_checks
from horovod.common.training.agreement import Reduced, agree_on_gradients
from horovod.common.training.gradient_options import cut_into_groups, group_name, takes_part
from horovod.common.training.present_gradients import OF_THIS_RANK, PresentGradients
from horovod.torch.elastic.state import settle
from horovod.torch.step_checks import contents_of, kind_of


class TorchBackend(Backend):
    """See ``horovod._keras.backend.Backend``."""

    name = "torch"
    hvd = hvd

    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """See ``Backend``."""
        if keras3_optimizer.keras_of(optimizer) is not keras:
            raise ValueError(
                "This is an optimizer of tf_keras, which computes by TensorFlow, and keras by torch."
            )
        return keras3_optimizer.distribute(optimizer, plan, keras)

    @torch.compiler.disable
    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """All travel at once. Where torch keeps them as gradients of parameters, they are overwritten."""
        if not takes_part(plan.settings.process_set):
            return list(gradients)
        reduced = _described(variables)
        present = agree_on_gradients(plan.name, plan.settings, reduced, variables, _identity)
        _check(gradients, variables, reduced, plan)
        own = {_slot_of(place, each): each for place, each in enumerate(gradients) if each is not None}
        exchange = _Exchange(own, variables, plan)
        if variables:
            exchange.run(present)
        return exchange.results()

    def scale(self, gradient: Any, factor: float) -> Any:
        """See ``Backend``."""
        return gradient * factor

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        tensors = [_tensor(variable).detach() for variable in variables]
        hvd.broadcast_parameters(tensors, root_rank, process_set)

    def broadcast_global_variables(self, root_rank: int) -> None:
        """RuntimeError: torch has no global variables."""
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use hvd.broadcast_variables(), or "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0) instead."
        )

    def settle(self) -> None:
        """See ``Backend``."""
        settle()

    def tensor(self, value: Any) -> Any:
        """A variable stands for its value, of which the result is no function."""
        tensor = keras.ops.convert_to_tensor(value)
        return tensor.detach() if isinstance(value, keras.Variable) else tensor


class _Exchange:
    """The gradients of one step on their way, by slot: see ``common.training.present_gradients``. Each
    variable has two, for a dense gradient and for a sparse one. ``own``: those of this rank.
    """

    def __init__(self, own: dict[int, Any], variables: Sequence[Any], plan: Plan) -> None:
        settings = self._settings = plan.settings
        self._name = plan.name
        self._own = _made_dense(own) if settings.sparse_as_dense else own
        self._sent: dict[int, Any] = {}
        self._variables = variables
        self._waits: list[Callable[[], None]] = []
        self._compression = resolve_plain_compression(settings.compression, "the gradients of Keras")
        self._factors: dict[str, Any] = {
            "prescale_factor": settings.prescale,
            "postscale_factor": settings.postscale,
        }

    def run(self, present: PresentGradients) -> None:
        """Reduces what some rank has; raises the first error after all has come to an end."""
        at_once = present.expected
        question = present.ask(self._own, 2 * len(self._variables))
        try:
            self._start_all(at_once)
        finally:
            answer = present.answer(question)
        self._start_all(answer - at_once)
        problems = [problem for wait in self._waits if (problem := _error_of(wait)) is not None]
        if problems:
            raise problems[0]
        for slot in at_once - answer:
            del self._sent[slot]

    def results(self) -> list[Any]:
        """For each variable its reduced gradient, or None where no rank has any."""
        found: list[Any] = [None] * len(self._variables)
        for slot, gradient in self._sent.items():  # dense ones come first
            before = found[slot // 2]
            found[slot // 2] = gradient if before is None else before + gradient
        return found

    def _start_all(self, slots: Iterable[int]) -> None:
        """Starts to reduce these, with zeros for those that this rank lacks."""
        wanted = sorted(slots)
        for slot in wanted:
            has = slot in self._own
            self._sent[slot] = self._own[slot] if has else _absent(slot, self._variables[slot // 2])
        self._waits += [self._start_sparse(slot) for slot in wanted if slot % 2]
        dense = [slot for slot in wanted if not slot % 2]
        together, alone = cut_into_groups(
            dense, self._settings.groups, _identity, lambda slot: _identity(self._variables[slot // 2])
        )
        self._waits += [self._start(members) for members in _uniform(together, self._sent)]
        self._waits += [self._start([slot]) for slot in alone]

    def _start_sparse(self, slot: int) -> Callable[[], None]:
        settings = self._settings
        name = f"{self._named(slot)}.sparse"
        finish = hvd.sparse_allreduce_async(self._sent[slot], name, settings.op, settings.process_set)

        def wait() -> None:
            self._sent[slot] = finish()

        return wait

    def _named(self, slot: int) -> str:
        return f"{self._name}.{slot // 2}.{self._variables[slot // 2].name}"

    def _start(self, members: list[int]) -> Callable[[], None]:
        settings, compression = self._settings, self._compression
        compressed = [compression.compress(self._sent[slot]) for slot in members]
        sent = [tensor for tensor, _ in compressed]
        # What compression has made, or torch keeps as the gradient of a parameter, may be overwritten.
        in_place = all(
            context is not None or _tensor(self._variables[slot // 2]).grad is self._sent[slot]
            for slot, (_, context) in zip(members, compressed, strict=True)
        )
        start = hvd.grouped_allreduce_async_ if in_place else hvd.grouped_allreduce_async
        handle = start(
            sent,
            name=group_name([self._named(slot) for slot in members]),
            op=settings.op,
            process_set=settings.process_set,
            **self._factors,
        )

        def wait() -> None:
            reduced = hvd.synchronize(handle)
            for slot, tensor, (_, context) in zip(members, reduced, compressed, strict=True):
                self._sent[slot] = compression.decompress(tensor, context)

        return wait


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


def _described(variables: Sequence[Any]) -> tuple[Reduced, ...]:
    return tuple(Reduced(v.name, str(v.dtype), tuple(v.shape)) for v in variables)


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


def _uniform(groups: Sequence[Sequence[int]], tensors: Mapping[int, Any]) -> list[list[int]]:
    """Cuts the groups by type and device: one operation has one of each."""
    parts: dict[tuple[int, Any, Any], list[int]] = {}
    for number, group in enumerate(groups):
        for index in group:
            key = (number, tensors[index].dtype, tensors[index].device)
            parts.setdefault(key, []).append(index)
    return list(parts.values())


def _error_of(wait: Callable[[], None]) -> Exception | None:
    try:
        wait()
    except Exception as error:
        return error
    return None


def _tensor(variable: Any) -> Any:
    """The torch tensor inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "value", None)
    return variable if inner is None else inner


def _identity(variable: Any) -> int:
    return id(_tensor(variable))


backend = TorchBackend()
