"""torch as the backend of the Keras parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

import horovod.torch as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.backend import REMEDY, Backend, Plan
from horovod.common.collective.compression import Compressor, resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training import step_checks
from horovod.common.training.agreement import DENSE, MISSING, SPARSE, Reduced, agree_on_gradients
from horovod.common.training.gradient_options import cut_into_groups, takes_part
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
        agree_on_gradients(
            plan.name, plan.settings, reduced, variables, _identity, lambda: [_kind(g) for g in gradients]
        )
        _check(gradients, variables, reduced, plan)
        return _Exchange(gradients, variables, plan).results()

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
    """The gradients of one step on their way."""

    def __init__(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> None:
        settings = self._settings = plan.settings
        self._name = plan.name
        self._results = list(gradients)
        self._variables = variables
        self._factors: dict[str, Any] = {
            "prescale_factor": settings.prescale,
            "postscale_factor": settings.postscale,
        }
        compression = resolve_plain_compression(settings.compression, "the gradients of Keras")
        self._waits = [self._start_sparse(index) for index in self._sparse()]
        dense = [index for index, gradient in enumerate(self._results) if _is_dense(gradient)]
        together, alone = cut_into_groups(
            dense, settings.groups, _identity, lambda index: _identity(variables[index])
        )
        for number, members in enumerate(_uniform(together, self._results)):
            self._waits.append(self._start(members, f"group.{number}", compression))
        self._waits += [self._start([index], str(index), compression) for index in alone]

    def results(self) -> list[Any]:
        """Waits for all; raises the first error after that."""
        problems = [problem for wait in self._waits if (problem := _error_of(wait)) is not None]
        if problems:
            raise problems[0]
        return self._results

    def _sparse(self) -> list[int]:
        """The sparse gradients that stay sparse."""
        found = [
            i for i, gradient in enumerate(self._results) if gradient is not None and not _is_dense(gradient)
        ]
        if not self._settings.sparse_as_dense:
            return found
        for index in found:
            self._results[index] = self._results[index].to_dense()
        return []

    def _start_sparse(self, index: int) -> Callable[[], None]:
        settings = self._settings
        name = f"{self._name}.{index}"
        finish = hvd.sparse_allreduce_async(self._results[index], name, settings.op, settings.process_set)

        def wait() -> None:
            self._results[index] = finish()

        return wait

    def _start(self, members: list[int], name: str, compression: type[Compressor]) -> Callable[[], None]:
        settings = self._settings
        compressed = [compression.compress(self._results[index]) for index in members]
        sent = [tensor for tensor, _ in compressed]
        # What compression has made, or torch keeps as the gradient of a parameter, may be overwritten.
        in_place = all(
            context is not None or _tensor(self._variables[index]).grad is self._results[index]
            for index, (_, context) in zip(members, compressed, strict=True)
        )
        start = hvd.grouped_allreduce_async_ if in_place else hvd.grouped_allreduce_async
        handle = start(
            sent,
            name=f"{self._name}.{name}",
            op=settings.op,
            process_set=settings.process_set,
            **self._factors,
        )

        def wait() -> None:
            reduced = hvd.synchronize(handle)
            for index, tensor, (_, context) in zip(members, reduced, compressed, strict=True):
                self._results[index] = compression.decompress(tensor, context)

        return wait


def _described(variables: Sequence[Any]) -> tuple[Reduced, ...]:
    return tuple(Reduced(v.name, str(v.dtype), tuple(v.shape)) for v in variables)


def _check(
    gradients: Sequence[Any], variables: Sequence[Any], reduced: tuple[Reduced, ...], plan: Plan
) -> None:
    """The checks of a step; see ``common.training.step_checks``."""
    checks = step_checks.of_steps(plan.settings.process_set, plan.name, reduced, REMEDY)
    if checks is None:
        return
    named = [
        (v.path, gradient, _tensor(v))
        for v, gradient in zip(variables, gradients, strict=True)
        if gradient is not None
    ]
    if checks.nonfinite and not plan.loss_is_scaled:
        kinds = ((name, kind_of(gradient)) for name, gradient, _ in named)
        checks.note_first(kinds)
    checks.before_update(contents_of([(name, tensor) for name, _, tensor in named]))


def _kind(gradient: Any) -> str:
    if gradient is None:
        return MISSING
    return DENSE if _is_dense(gradient) else SPARSE


def _uniform(groups: Sequence[Sequence[int]], tensors: Sequence[Any]) -> list[list[int]]:
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


def _is_dense(gradient: Any) -> bool:
    return gradient is not None and not gradient.is_sparse


def _tensor(variable: Any) -> Any:
    """The torch tensor inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "value", None)
    return variable if inner is None else inner


def _identity(variable: Any) -> int:
    return id(_tensor(variable))


backend = TorchBackend()
