"""The operations on torch tensors: the common ones over torch's glue, and their forms for autograd.

The rules of the gradients are in ``horovod.common.gradients``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import basics, gradients
from horovod.common.collectives import Collectives
from horovod.common.objects import ObjectCollectives
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import resolve_op
from horovod.torch.glue import TorchGlue


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
        ctx.arguments = (name, resolve_op(op, average), prescale_factor, postscale_factor)
        return ops.synchronize(ops.allreduce_async(tensor, None, *ctx.arguments, process_set))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (
            gradients.allreduce_gradient(ops, grad_output, *ctx.arguments),
            None,
            None,
            None,
            None,
            None,
            None,
        )


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
        ctx.arguments = (name, resolve_op(op, average), prescale_factor, postscale_factor)
        return tuple(ops.synchronize(ops.grouped_allreduce_async(tensors, None, *ctx.arguments, process_set)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        reduced = gradients.grouped_allreduce_gradient(ops, grad_outputs, *ctx.arguments)
        return (None, None, None, None, None, None, *reduced)


class HorovodAllgather(torch.autograd.Function):
    """Differentiable allgather."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.name = name
        ctx.rows = tensor.shape[0] if tensor.dim() > 0 else 0
        return ops.synchronize(ops.allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (gradients.allgather_gradient(ops, grad_output, ctx.name, ctx.rows), None, None)


class HorovodBroadcast(torch.autograd.Function):
    """Differentiable broadcast."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.arguments = (name, root_rank)
        return ops.synchronize(ops.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (gradients.broadcast_gradient(ops, grad_output, *ctx.arguments), None, None, None)


class RecordingGlue(TorchGlue):
    """Leads operations on tensors that require a gradient through autograd."""

    def allreduce_recorded(
        self, tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float
    ) -> torch.Tensor:
        return HorovodAllreduce.apply(tensor, None, name, op, prescale, postscale, global_process_set)

    def grouped_allreduce_recorded(
        self, tensors: Sequence[torch.Tensor], name: str | None, op: int, prescale: float, postscale: float
    ) -> list[torch.Tensor]:
        return list(
            HorovodGroupedAllreduce.apply(None, name, op, prescale, postscale, global_process_set, *tensors)
        )

    def allgather_recorded(self, tensor: torch.Tensor, name: str | None) -> torch.Tensor:
        return HorovodAllgather.apply(tensor, name, global_process_set)

    def broadcast_recorded(self, tensor: torch.Tensor, root_rank: int, name: str | None) -> torch.Tensor:
        return HorovodBroadcast.apply(tensor, root_rank, name, global_process_set)


ops = Collectives(RecordingGlue())
objects = ObjectCollectives(ops)

basics.on_shutdown(ops.reset)
os.register_at_fork(after_in_child=ops.reset_in_child)
