"""The arguments of ``DistributedOptimizer``, checked once for every adapter and every generation of Keras."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from horovod._keras.backend import Backend, GradientSettings
from horovod.common.compression import Compressor, NoneCompressor, resolve_compression
from horovod.common.gradient_options import (
    Groups,
    check_passes,
    check_predivide,
    cut_into_groups,
    resolve_groups,
)
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average, resolve_op


@dataclass(frozen=True, eq=False)
class Plan:
    """What a distributed optimizer does with gradients before it applies them."""

    backend: Backend
    settings: GradientSettings
    passes: int = 1
    average_passes: bool = False
    scale_local: bool = True
    local_layers: tuple[Any, ...] = ()

    def with_scaled_loss(self) -> Plan:
        """The same for an optimizer that scales the loss."""
        return replace(self, settings=replace(self.settings, loss_is_scaled=True))


def make_plan(
    backend: Backend,
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Plan:
    """Checks the arguments, which the adapters' ``DistributedOptimizer`` explain. Raises ValueError."""
    backend.size()  # raises before hvd.init()
    op = resolve_op(op)
    check_predivide(op, gradient_predivide_factor)
    check_passes(backward_passes_per_step)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients=True")
    groups = resolve_groups(groups, num_groups)
    cut_into_groups([], groups)  # raises for what is no description of groups
    settings = GradientSettings(
        name=name or f"Distributed{type(optimizer).__name__}",
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=resolve_compression(compression),
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
        passes=backward_passes_per_step,
        average_passes=average_aggregated_gradients,
    )
    return Plan(
        backend,
        settings,
        backward_passes_per_step,
        average_aggregated_gradients,
        scale_local_gradients,
        _checked_layers(local_layers),
    )


def _checked_layers(layers: Any) -> tuple[Any, ...]:
    if layers is None:
        return ()
    given = tuple(layers) if isinstance(layers, Iterable) else (layers,)
    for layer in given:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"All local layers must be layers of Keras, found a {type(layer).__name__}")
    return given
