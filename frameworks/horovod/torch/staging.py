"""Tensors of a device, staged through host memory in stream order.

At submission the tensor is copied to pinned host memory on the caller's current stream, behind whatever
computes it; an event says when the copy is done, and only then does the core see the bytes. At
``synchronize`` the result is copied back on the stream that is current then. The host blocks on neither copy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod.common.placement import Output, Placement
from horovod.common.tensor_glue import Result
from horovod.torch.dtypes import DTYPES


class BlockingDevice:
    """A device of any kind: every copy waits for the device."""

    non_blocking = False

    def host_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous CPU tensor of the shape and type of ``tensor``."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

    def record(self, device: torch.device) -> Callable[[], None] | None:
        """What blocks until all that the current stream was given so far is done; None when it already is."""
        return None


class CudaDevice(BlockingDevice):
    """A CUDA device. torch's allocator of pinned memory reuses a buffer only after the copies from and to
    it.
    """

    non_blocking = True

    def host_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)

    def record(self, device: torch.device) -> Callable[[], None] | None:
        event = torch.cuda.Event(blocking=True)  # the waiting thread sleeps
        event.record(torch.cuda.current_stream(device))
        return event.synchronize


_DEVICES: dict[str, BlockingDevice] = {"cuda": CudaDevice()}
_ANY_DEVICE = BlockingDevice()


def place(
    tensor: torch.Tensor, data: torch.Tensor, result: Result, device: BlockingDevice | None = None
) -> Placement[torch.Tensor]:
    """The placement of ``tensor``, of which ``data`` is the detached alias."""
    device = device or _DEVICES.get(tensor.device.type, _ANY_DEVICE)
    buffer = device.host_buffer(data)
    buffer.copy_(data, non_blocking=device.non_blocking)
    ready = device.record(tensor.device)

    def finish(output: Output | None) -> torch.Tensor:
        if result is Result.FROM_CORE:
            return torch.from_dlpack(output).to(tensor.device)
        target = (
            data
            if result is Result.IN_PLACE
            else torch.empty(data.shape, dtype=data.dtype, device=data.device)
        )
        target.copy_(buffer, non_blocking=device.non_blocking)
        return tensor if result is Result.IN_PLACE else target

    address = buffer.data_ptr()
    size = buffer.nbytes
    output_address, room = (0, 0) if result is Result.FROM_CORE else (address, size)
    spec = (address, output_address, DTYPES[buffer.dtype], buffer.shape, size, room)
    return Placement(spec, (buffer, data), finish, ready, on_device=True)
