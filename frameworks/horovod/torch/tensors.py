"""What torch tensors are to the core: addresses, types, shapes, and the detours for tensors that it cannot
take as they are (not contiguous, negated views, other devices).

A tensor of a device is staged. At submission it is copied to pinned host memory on the caller's current
stream, behind whatever computes it; an event says when the copy is done, and only then does the core see the
bytes. At ``synchronize`` the result is copied back on the stream that is current then. The host blocks on
neither copy.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.collective.tensor_glue import DTYPES as NUMBERS
from horovod.common.collective.tensor_glue import Output, Placement, Result, Spec, TensorGlue

DTYPES: dict[torch.dtype, int] = {
    dtype: number
    for name, number in NUMBERS.items()
    if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}
"""The numbers by which the core knows torch's types."""

# Types for which every operation of the core exists; the others are looked at more closely in `place`.
_PLAIN_DTYPES = {dtype: number for dtype, number in DTYPES.items() if dtype != torch.bool}
_INT32_MAX = torch.iinfo(torch.int32).max


def describe(tensor: torch.Tensor) -> Spec | None:
    """See TensorGlue. Takes half a microsecond and creates no tensor."""
    try:
        if tensor.is_contiguous() and tensor.is_cpu:
            dtype = _PLAIN_DTYPES.get(tensor.dtype)
            if dtype is not None and not tensor.is_neg():
                address = tensor.data_ptr()
                size = tensor.nbytes
                return (address, address, dtype, tensor.shape, size, size)
    except (AttributeError, RuntimeError):
        pass  # no tensor, or one without memory: `place` says which
    return None


def place(tensor: torch.Tensor, result: Result) -> Placement[torch.Tensor]:
    """See TensorGlue."""
    check(tensor)
    if result is Result.IN_PLACE and overlaps(tensor):
        raise ValueError("Tensor is required to be contiguous: its elements share memory (an expanded view).")
    data = tensor.detach()
    if not tensor.is_cpu:
        return stage(tensor, data, result)
    source = data.resolve_neg().contiguous()  # the same tensor where nothing is to be done
    address = source.data_ptr()
    dtype = DTYPES[source.dtype]
    if result is Result.FROM_CORE:
        return Placement((address, 0, dtype, source.shape, source.nbytes, 0), source, adopt)
    if result is Result.LIKE_INPUT:
        output = torch.empty(source.shape, dtype=source.dtype, device="cpu")
        spec = (address, output.data_ptr(), dtype, source.shape, source.nbytes, output.nbytes)
        return Placement(spec, (source, output), lambda _: output)

    def finish(output: Output | None) -> torch.Tensor:
        if source is not data:
            data.copy_(source)
        return tensor

    spec = (address, address, dtype, source.shape, source.nbytes, source.nbytes)
    return Placement(spec, source, finish)


def check(tensor: Any) -> None:
    """Raises unless the tensor can take part in an operation."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"Expected a torch.Tensor, not {type(tensor).__name__}.")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise ValueError(f"Tensor of layout {tensor.layout} is not supported; convert it with to_dense().")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if tensor.device.type == "meta":
        raise ValueError("A tensor on the meta device has no content to send; materialise it first.")


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether an expanded dimension makes several elements one."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.numel() > 0 and any(stride == 0 and size > 1 for size, stride in pairs)


def adopt(output: Output | None) -> torch.Tensor:
    """The core's output as a tensor, without a copy."""
    return torch.from_dlpack(output)


def from_bytes(data: bytes) -> torch.Tensor:
    """See TensorGlue."""
    if not data:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def to_bytes(tensor: torch.Tensor) -> bytes:
    """See TensorGlue."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() > 0 else b""


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


def stage(
    tensor: torch.Tensor, data: torch.Tensor, result: Result, device: BlockingDevice | None = None
) -> Placement[torch.Tensor]:
    """The placement of a ``tensor`` of a device, of which ``data`` is the detached alias: staged through host
    memory in stream order.
    """
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


class TorchGlue(TensorGlue[torch.Tensor]):
    """Describes, places and makes torch tensors."""

    describe = staticmethod(describe)
    place = staticmethod(place)
    from_bytes = staticmethod(from_bytes)
    to_bytes = staticmethod(to_bytes)

    def empty_like(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        output = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return output, output.data_ptr()

    def device(self, tensor: torch.Tensor) -> object:
        return tensor.device

    def rows(self, tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
        return tensor.narrow(0, start, count)

    def row_count(self, tensor: torch.Tensor) -> int:
        return tensor.shape[0] if tensor.dim() > 0 else 0

    def placed(
        self, tensor: torch.Tensor, counts: Sequence[int], starts: Sequence[int], rows: int
    ) -> torch.Tensor:
        if tensor.shape[0] == rows:
            return tensor
        placed = tensor.new_zeros((rows, *tensor.shape[1:]))
        parts = tensor.split([int(count) for count in counts])
        for part, start in zip(parts, starts, strict=True):
            placed[start : start + part.shape[0]] = part
        return placed

    def scaled(self, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        return tensor * factor if tensor.is_floating_point() else (tensor.double() * factor).to(tensor.dtype)

    def integers(self, values: Any) -> list[int]:
        given = values.tolist() if isinstance(values, torch.Tensor) else values
        try:
            return [operator.index(value) for value in given]
        except TypeError:
            kind = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise ValueError(
                f"Expected a one-dimensional tensor or a list of integers, not {kind}."
            ) from None

    def integer_tensor(self, values: Sequence[int], like: Any) -> torch.Tensor:
        large = any(value > _INT32_MAX for value in values)
        device = like.device if isinstance(like, torch.Tensor) else None
        return torch.tensor(values, dtype=torch.int64 if large else torch.int32, device=device)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(tensor)

    def records_gradient(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()
