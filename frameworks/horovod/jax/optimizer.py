"""Distributed training by a transformation of optax."""

from __future__ import annotations

from typing import Any

import jax

from horovod.common.collective.compression import NoneCompressor, is_stateful
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.gradient_options import GradientSettings
from horovod.jax.accumulation import in_steps
from horovod.jax.trees import allreduce


def DistributedOptimizer(
    optimizer: Any,
    compression: Any = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
) -> Any:
    """An optimizer of optax that reduces the gradients over all ranks before it uses them, as one operation::

        optimizer = hvd.DistributedOptimizer(optax.adam(1e-3))
        state = optimizer.init(params)

        @jax.jit
        def step(params, state, batch):
            gradients = jax.grad(loss)(params, batch)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

    Args:
        optimizer: an ``optax.GradientTransformation``, or anything with ``init`` and ``update`` like one.
        compression: of ``hvd.Compression``.
        backward_passes_per_step: how many gradients are added up on each rank before they travel.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: by what gradients are divided before they are added up; for Average.
        average_aggregated_gradients: divides what was added up on a rank by ``backward_passes_per_step``.
        process_set: the ranks that train together.
        name: of the operation. Where several threads train, each optimizer needs one of its own: the ranks
            match operations without a name by their order.

    Returns:
        An optimizer of the same kind. Gradients that are None stay so.

    Raises:
        ValueError: an argument is wrong.
        TypeError: ``optimizer`` is none, or ``compression`` is no class of compressors.
    """
    settings = GradientSettings.among(locals())
    if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
        raise TypeError(f"Expected an optimizer of optax, not {type(optimizer).__name__}.")
    if is_stateful(settings.compression):
        raise ValueError(
            f"{settings.compression.__name__} keeps a state, which horovod.jax has no place for."
        )

    optimizer = _with_more_arguments(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        return optimizer.update(_reduced(updates, settings, name), state, params, **more)

    if backward_passes_per_step == 1:
        return _like(optimizer, update)
    return in_steps(optimizer, update, backward_passes_per_step, average_aggregated_gradients)


def _reduced(gradients: Any, settings: GradientSettings, name: str | None) -> Any:
    if not jax.tree_util.tree_leaves(gradients):
        return gradients
    return allreduce(
        gradients,
        compression=settings.compression,
        op=settings.op,
        prescale_factor=settings.prescale,
        postscale_factor=settings.postscale,
        name=name,
        process_set=settings.process_set,
    )


def _with_more_arguments(optimizer: Any) -> Any:
    """One whose ``update`` is given arguments that are for others in an ``optax.chain``."""
    try:
        import optax
    except ImportError:
        return optimizer
    if isinstance(optimizer, optax.GradientTransformation):
        return optax.with_extra_args_support(optimizer)
    return optimizer


def _like(optimizer: Any, update: Any) -> Any:
    try:
        import optax
    except ImportError:
        return type(optimizer)(optimizer.init, update)
    return optax.GradientTransformationExtraArgs(optimizer.init, update)
