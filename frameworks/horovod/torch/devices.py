"""The calls to a device, one class for each kind of them. Tests play them with tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from horovod.common.collective.tensor_glue import Location, Output


class BlockingDevice:
    """A device of any kind: every copy waits for the device, and no collective runs on it."""

    non_blocking = False
    has_streams = False

    def host_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous CPU tensor of the shape and type of ``tensor``."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

    def record(self, device: torch.device) -> Callable[[], None] | None:
        """What blocks until all that the current stream was given so far is done; None when it already is."""
        return None

    def is_capturing(self, device: torch.device) -> bool:
        """Whether the current stream records what it is given, for a graph, instead of doing it."""
        return False

    def current_stream(self, device: torch.device) -> Any:
        """Of this thread, where the device ``has_streams``: as torch.cuda.Stream."""
        raise NotImplementedError

    def event(self, stream: Any) -> Any:
        """One that is reached when all that ``stream`` was given so far is done: as torch.cuda.Event."""
        raise NotImplementedError

    def lend(self, tensor: torch.Tensor, stream: Any) -> None:
        """Has the allocator keep the memory of ``tensor`` until ``stream`` is done with it."""
        raise NotImplementedError


class CudaDevice(BlockingDevice):
    """A CUDA device, or one of ROCm, which torch calls so too. torch's allocator of pinned memory reuses a
    buffer only after the copies from and to it.
    """

    non_blocking = True
    has_streams = True

    def host_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)

    def record(self, device: torch.device) -> Callable[[], None] | None:
        event = torch.cuda.Event(blocking=True)  # the waiting thread sleeps
        event.record(torch.cuda.current_stream(device))
        return event.synchronize

    def is_capturing(self, device: torch.device) -> bool:
        if device.index == torch.cuda.current_device():
            return torch.cuda.is_current_stream_capturing()
        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()

    def current_stream(self, device: torch.device) -> Any:
        return torch.cuda.current_stream(device)

    def event(self, stream: Any) -> Any:
        return stream.record_event()

    def lend(self, tensor: torch.Tensor, stream: Any) -> None:
        tensor.record_stream(stream)


_DEVICES: dict[str, BlockingDevice] = {"cuda": CudaDevice()}
_ANY_DEVICE = BlockingDevice()


def calls_to(device: torch.device) -> BlockingDevice:
    """The calls to a device, by its kind."""
    return _DEVICES.get(device.type, _ANY_DEVICE)


class StreamWork:
    """An operation that starts on the current stream of ``device``, behind all that the stream was given so
    far.

    Meanwhile the stream goes on with what else it is given: whoever takes a result has the stream wait on
    which it takes it. Until then the tensors are kept: from then on the allocator, which reuses memory in
    the order of streams, does so behind the operation. Only where another stream than the first takes the
    result the allocator has to be told.
    """

    def __init__(self, calls: BlockingDevice, device: torch.device) -> None:
        self._calls = calls
        self._device = device
        self._stream = calls.current_stream(device)
        self._ready = calls.event(self._stream)
        self.location = Location(device.index or 0, self._stream.cuda_stream, self._ready.cuda_event)

    def follow(self, output: Output, *tensors: torch.Tensor) -> None:
        """Makes the present stream wait for ``output``, once the operation has been given to the GPU.
        ``tensors``, of the stream on which it began, stay valid for the present one.
        """
        current = self._calls.current_stream(self._device)
        output.follow(int(current.cuda_stream))
        if current != self._stream:
            for tensor in tensors:
                self._calls.lend(tensor, current)
