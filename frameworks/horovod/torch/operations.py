"""The operations on torch tensors: the common ones, over torch's glue."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from horovod.common import basics
from horovod.common.collectives import Collectives
from horovod.common.objects import ObjectCollectives
from horovod.common.process_sets import global_process_set
from horovod.common.tensor_glue import TensorGlue
from horovod.torch import tensors


class TorchGlue(TensorGlue[torch.Tensor]):
    """torch behind the verbs of TensorGlue."""

    describe = staticmethod(tensors.describe)
    place = staticmethod(tensors.place)
    from_bytes = staticmethod(tensors.from_bytes)
    to_bytes = staticmethod(tensors.to_bytes)

    def empty_like(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        output = torch.empty(tensor.shape, dtype=tensor.dtype)
        return output, output.data_ptr()

    def device(self, tensor: torch.Tensor) -> object:
        return tensor.device

    def dimensions(self, tensor: torch.Tensor) -> int:
        return tensor.dim()

    def rows(self, tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
        return tensor.narrow(0, start, count)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(tensor)

    def records_gradient(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()

    def allreduce_recorded(
        self, tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float
    ) -> torch.Tensor:
        from horovod.torch.autograd import (
            HorovodAllreduce,
        )  # late: the gradients use the operations made here

        return HorovodAllreduce.apply(tensor, None, name, op, prescale, postscale, global_process_set)

    def grouped_allreduce_recorded(
        self, tensors: Sequence[torch.Tensor], name: str | None, op: int, prescale: float, postscale: float
    ) -> list[torch.Tensor]:
        from horovod.torch.autograd import HorovodGroupedAllreduce

        return list(
            HorovodGroupedAllreduce.apply(None, name, op, prescale, postscale, global_process_set, *tensors)
        )

    def allgather_recorded(self, tensor: torch.Tensor, name: str | None) -> torch.Tensor:
        from horovod.torch.autograd import HorovodAllgather

        return HorovodAllgather.apply(tensor, name, global_process_set)

    def broadcast_recorded(self, tensor: torch.Tensor, root_rank: int, name: str | None) -> torch.Tensor:
        from horovod.torch.autograd import HorovodBroadcast

        return HorovodBroadcast.apply(tensor, root_rank, name, global_process_set)


ops = Collectives(TorchGlue())
objects = ObjectCollectives(ops)

basics.on_shutdown(ops.reset)
os.register_at_fork(after_in_child=ops.reset_in_child)
