"""What the Keras parts need from the framework that computes, and the plan that they hand to it."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from horovod.common import basics
from horovod.common.collective import byte_objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.gradient_options import GradientSettings, cut_into_groups

REMEDY = "hvd.callbacks.BroadcastGlobalVariablesCallback(0) to the callbacks of fit()"
"""What a training whose ranks start with different variables is to add."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a distributed optimizer does with gradients before it applies them."""

    backend: Backend
    name: str
    """Begins the names of the operations."""
    settings: GradientSettings
    local_layers: tuple[Any, ...] = ()
    loss_is_scaled: bool = False
    """Whether the optimizer scales the loss, and so copes with gradients that are not finite."""

    def with_scaled_loss(self) -> Plan:
        """The same for an optimizer that scales the loss."""
        return replace(self, loss_is_scaled=True)


def make_plan(
    backend: Backend,
    optimizer: Any,
    settings: GradientSettings,
    name: str | None = None,
    local_layers: Any = None,
) -> Plan:
    """The plan for an optimizer. ValueError before ``hvd.init()``, for groups that are none, and for what is
    no layer.
    """
    backend.size()  # raises before hvd.init()
    cut_into_groups([], settings.groups)  # raises for what is no description of groups
    name = name or f"Distributed{type(optimizer).__name__}"
    return Plan(backend, name, settings, _checked_layers(local_layers))


def _checked_layers(layers: Any) -> tuple[Any, ...]:
    if layers is None:
        return ()
    given = tuple(layers) if isinstance(layers, Iterable) else (layers,)
    for layer in given:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"All local layers must be layers of Keras, found a {type(layer).__name__}")
    return given


class Backend(ABC):
    """One instance for each framework; all state is the job's."""

    name: str
    """What ``keras.backend.backend()`` says: "tensorflow", "torch" or "jax"."""

    hvd: Any
    """The framework's own adapter: its operations, ``Compression`` and ``metric``."""

    @abstractmethod
    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """A distributed copy of ``optimizer``. ValueError when this framework does not compute for it."""

    @abstractmethod
    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """The gradients of the whole job, in the same order; None where no rank has one.

        ``variables`` are those that the gradients belong to, or OF_THIS_RANK. Runs wherever the framework
        calls the optimizer: eagerly or in a graph. On a rank that has nobody to reduce with, the gradients
        are returned as they are.
        """

    def divided(self, gradient: Any, process_set: ProcessSet) -> Any:
        """The gradient, which may be sparse, divided by the number of ranks of the set: of those that there
        are when it is computed.
        """
        size = process_set.size() or 1
        return gradient if size == 1 else gradient * (1.0 / size)

    @abstractmethod
    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Gives all variables, those of models and of optimizers, the values that they have on
        ``root_rank``. Names do not matter, the order does; call it outside of graphs.
        """

    def broadcast_global_variables(self, root_rank: int) -> None:
        """The same for all variables of the default graph. RuntimeError where there is none."""
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use hvd.broadcast_variables(), or "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0) instead."
        )

    @abstractmethod
    def tensor(self, value: Any) -> Any:
        """A number, array, variable or tensor as a tensor of the framework."""

    def is_eager(self) -> bool:
        """Whether what is computed now runs once, and is no part of a graph that is being made."""
        return True

    def is_in_sessions(self) -> bool:
        """Whether operations outside of functions are parts of a graph that a session runs."""
        return False

    def result(self, tensor: Any) -> Any:
        """What the caller of an operation outside of graphs gets: what ``hvd`` has returned, evaluated."""
        return tensor

    def internal_errors(self) -> contextlib.AbstractContextManager[None]:
        """Within it, the framework's error for a job that is lost becomes a HorovodInternalError."""
        return contextlib.nullcontext()

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Makes sure that what was computed so far has not failed. All ranks call it together."""

    def give_back(self, model: Any) -> None:  # noqa: B027 - most have nothing to do
        """Makes sure that the variables of a model in training have the values of its latest step, and that
        what is assigned to them counts.
        """

    def forget_passes(self, model: Any) -> None:  # noqa: B027 - most have nothing to do
        """What a training or an evaluation that has failed keeps of a model counts no longer."""

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The average of each number over the ranks, sorted by name, for logs. ValueError on every rank when
        the ranks do not have the same names.
        """
        mine = {name: float(values[name]) for name in sorted(values)}
        if basics.size() == 1:
            return mine
        gathered = byte_objects.objects.allgather_object(mine, "hvd.callbacks.MetricAverageCallback")
        for rank, theirs in enumerate(gathered):
            if theirs.keys() != gathered[0].keys():
                raise ValueError(
                    f"The ranks average different numbers: rank 0 has {list(gathered[0])}, rank {rank} has "
                    f"{list(theirs)}. Give all ranks the same metrics and validation data."
                )
        return {name: math.fsum(theirs[name] for theirs in gathered) / len(gathered) for name in mine}

    def rank(self) -> int:
        """This process's number in the job."""
        return basics.rank()

    def size(self) -> int:
        """How many processes the job has."""
        return basics.size()
