"""The operations as functions of torch's autograd. The rules of the gradients are in
``horovod.common.gradients``.

Every ``forward`` takes the arguments of the public operation, in the order that existing code applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import gradients
from horovod.common.collectives import Collectives
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import resolve_op

Gradients = tuple[torch.Tensor | None, ...]

ops: Collectives[torch.Tensor]


def bind(operations: Collectives[torch.Tensor]) -> None:
    """Says by which operations the functions run; these and the functions need each other."""
    global ops
    ops = operations


def _rows(tensor: torch.Tensor) -> int:
    return tensor.shape[0] if tensor.dim() > 0 else 0


class HorovodAllreduce(torch.autograd.Function):
    """Differentiable allreduce."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = (name, resolve_op(op, average), prescale_factor, postscale_factor, process_set)
        return ops.synchronize(ops.allreduce_async(tensor, None, *ctx.arguments))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Gradients:
        reduced = gradients.allreduce_gradient(ops, grad_output, *ctx.arguments)
        return (reduced, None, None, None, None, None, None)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Differentiable grouped allreduce."""

    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, resolve_op(op, average), prescale_factor, postscale_factor, process_set)
        return tuple(ops.synchronize(ops.grouped_allreduce_async(tensors, None, *ctx.arguments)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Gradients:
        reduced = gradients.grouped_allreduce_gradient(ops, grad_outputs, *ctx.arguments)
        return (None, None, None, None, None, None, *reduced)


class HorovodAllgather(torch.autograd.Function):
    """Differentiable allgather."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = (name, _rows(tensor), process_set)
        return ops.synchronize(ops.allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Gradients:
        return (gradients.allgather_gradient(ops, grad_output, *ctx.arguments), None, None)


class HorovodGroupedAllgather(torch.autograd.Function):
    """Differentiable grouped allgather."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, [_rows(tensor) for tensor in tensors], process_set)
        return tuple(ops.synchronize(ops.grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Gradients:
        return (None, None, *gradients.grouped_allgather_gradient(ops, grad_outputs, *ctx.arguments))


class HorovodBroadcast(torch.autograd.Function):
    """Differentiable broadcast."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.arguments = (name, root_rank, process_set)
        return ops.synchronize(ops.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Gradients:
        return (gradients.broadcast_gradient(ops, grad_output, *ctx.arguments), None, None, None)


class HorovodAlltoall(torch.autograd.Function):
    """Differentiable alltoall. With ``splits`` the result is (tensor, received splits)."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        splits: torch.Tensor | Sequence[int] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        handle = ops.alltoall_async(tensor, splits, name, process_set)
        received, sources = ops.synchronize(handle)
        size = process_set.size() or 1
        sent = ops.glue.integers(splits) if splits is not None else []
        sent = sent or [_rows(tensor) // size] * size
        ctx.arguments = (name, sources.tolist(), sent, _rows(tensor), process_set)
        if splits is None:
            return received
        ctx.mark_non_differentiable(sources)
        return received, sources

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor, *_: torch.Tensor) -> Gradients:
        return (gradients.alltoall_gradient(ops, grad_output, *ctx.arguments), None, None, None)


class HorovodReducescatter(torch.autograd.Function):
    """Differentiable reducescatter."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        ctx.arguments = (name, op, process_set, prescale_factor, postscale_factor)
        ctx.rows = _rows(tensor)
        return ops.synchronize(ops.reducescatter_async(tensor, *ctx.arguments))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Gradients:
        arguments = (*ctx.arguments, ctx.rows)
        gathered = gradients.reducescatter_gradient(ops, grad_output, *arguments)
        return (gathered, None, None, None, None, None)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Differentiable grouped reducescatter."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, op, process_set, prescale_factor, postscale_factor)
        ctx.rows = [_rows(tensor) for tensor in tensors]
        return tuple(ops.synchronize(ops.grouped_reducescatter_async(tensors, *ctx.arguments)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Gradients:
        arguments = (*ctx.arguments, ctx.rows)
        gathered = gradients.grouped_reducescatter_gradient(ops, grad_outputs, *arguments)
        return (None, None, None, None, None, *gathered)
