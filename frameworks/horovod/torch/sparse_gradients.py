"""Sparse gradients, and how the ranks agree on which gradients are sparse.

Only a backward pass tells whether a gradient is sparse, and it may tell each rank something else: one that
did not use an embedding has no gradient for it, one that shares its weight with a dense layer has a dense
one. So the first time that a rank meets a sparse gradient, it sends its layouts in place of the group's usual
operation, under the same name. Others do the same, or find that their operation does not match and send
theirs then. What was agreed on holds from then on: a gradient that is sparse somewhere and dense nowhere
travels as a sparse one, every other as a dense one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from horovod.common.exceptions import TensorMismatchError
from horovod.common.reduce_ops import OP_NAMES, Average, Sum
from horovod.torch.gradient_hooks import GradientHook, Reduction
from horovod.torch.operations import ops

_ABSENT, _DENSE, _SPARSE = range(3)

Steps = Generator[None, None, None]


def agree_on_layouts(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    """For a rank that has met a sparse gradient. A journey; afterwards ``sparse`` of every hook is set."""
    handle = ops.allgather_async(_layouts(hooks), name, reduction.process_set)
    yield
    try:
        everybodys = ops.synchronize(handle)
    except TensorMismatchError:
        yield from exchange_layouts(name, hooks, reduction)
    else:
        _settle(hooks, everybodys)


def exchange_layouts(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    """For all ranks, after their operations did not match. ``sparse`` is left None when none had a sparse
    gradient.
    """
    handle = ops.allgather_async(_layouts(hooks), name + ".layouts", reduction.process_set)
    yield
    everybodys = ops.synchronize(handle)
    if bool((everybodys == _SPARSE).any()):
        _settle(hooks, everybodys)


def reduce_sparse(name: str, hook: GradientHook, reduction: Reduction) -> Steps:
    """One gradient as two allgathers, of the indices and of the values. A journey."""
    if reduction.op not in (Average, Sum):
        raise ValueError(
            f"The gradient of parameter {hook.name!r} is sparse, which op=hvd.{OP_NAMES[reduction.op]} "
            "cannot reduce; give DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
        )
    gradient = hook.sparse_gradient()
    finish = ops.sparse_allreduce_async(gradient, name, reduction.op, reduction.process_set)
    yield
    hook.parameter.grad = finish().coalesce()


def _layouts(hooks: Sequence[GradientHook]) -> torch.Tensor:
    return torch.tensor([[_layout(hook) for hook in hooks]], dtype=torch.uint8, device="cpu")


def _layout(hook: GradientHook) -> int:
    if hook.parameter.grad is None or hook.filled:
        return _ABSENT
    return _SPARSE if hook.gradient_is_sparse else _DENSE


def _settle(hooks: Sequence[GradientHook], everybodys: torch.Tensor) -> None:
    for hook, column in zip(hooks, everybodys.t(), strict=True):
        found = set(column.tolist())
        hook.sparse = _SPARSE in found and _DENSE not in found
