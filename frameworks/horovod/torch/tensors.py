"""What torch tensors are to the core: addresses, types, shapes, and the detours for tensors that it cannot
take as they are (not contiguous, negated views, other devices).
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from horovod.common.placement import Output, Placement, Spec
from horovod.common.tensor_glue import Result
from horovod.torch import staging
from horovod.torch.dtypes import DTYPES

# Types for which every operation of the core exists; the others are looked at more closely in `place`.
_PLAIN_DTYPES = {dtype: number for dtype, number in DTYPES.items() if dtype != torch.bool}


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
        return staging.place(tensor, data, result)
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
