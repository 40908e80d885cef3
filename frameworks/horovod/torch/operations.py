"""The operations on torch tensors: the common ones over torch's glue, and how autograd leads to its forms of
them (``autograd``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import basics
from horovod.common.objects import ObjectCollectives
from horovod.common.process_sets import ProcessSet
from horovod.torch import autograd
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.glue import TorchGlue
from horovod.torch.sparse import TorchCollectives


class RecordingGlue(TorchGlue):
    """Leads operations on tensors that require a gradient through autograd."""

    def allreduce_recorded(
        self,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        return autograd.HorovodAllreduce.apply(tensor, None, name, op, prescale, postscale, process_set)

    def grouped_allreduce_recorded(
        self,
        tensors: Sequence[torch.Tensor],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> list[torch.Tensor]:
        arguments = (None, name, op, prescale, postscale, process_set)
        return list(autograd.HorovodGroupedAllreduce.apply(*arguments, *tensors))

    def allgather_recorded(
        self, tensor: torch.Tensor, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        return autograd.HorovodAllgather.apply(tensor, name, process_set)

    def grouped_allgather_recorded(
        self, tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet
    ) -> list[torch.Tensor]:
        return list(autograd.HorovodGroupedAllgather.apply(name, process_set, *tensors))

    def broadcast_recorded(
        self, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        return autograd.HorovodBroadcast.apply(tensor, root_rank, name, process_set)

    def alltoall_recorded(
        self, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        return autograd.HorovodAlltoall.apply(tensor, splits, name, process_set)

    def reducescatter_recorded(
        self,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale: float,
        postscale: float,
    ) -> torch.Tensor:
        return autograd.HorovodReducescatter.apply(tensor, name, op, process_set, prescale, postscale)

    def grouped_reducescatter_recorded(
        self,
        tensors: Sequence[torch.Tensor],
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale: float,
        postscale: float,
    ) -> list[torch.Tensor]:
        arguments = (name, op, process_set, prescale, postscale)
        return list(autograd.HorovodGroupedReducescatter.apply(*arguments, *tensors))


for _operations in (*TorchCollectives.__mro__[:-1], ObjectCollectives, ProcessSet):
    methods_outside_of_graphs(_operations)

ops = TorchCollectives(RecordingGlue())
autograd.bind(ops)
objects = ObjectCollectives(ops)

basics.on_shutdown(ops.reset)
os.register_at_fork(after_in_child=ops.reset_in_child)
