"""What torch tensors are to the core: addresses, types, shapes. ``placements`` has the detours for tensors
that it cannot take as they are (not contiguous, negated views, other devices).
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from horovod.common.collective.tensor_glue import Placement, Purpose, Result, Spec, TensorGlue, describer
from horovod.torch.complex_numbers import COMPLEX, as_pairs
from horovod.torch.layouts import overlaps
from horovod.torch.placements import DTYPES, on_devices, on_host

# Types for which every operation of the core exists; the others are looked at more closely in `place`.
_PLAIN_DTYPES = {dtype: number for dtype, number in DTYPES.items() if dtype != torch.bool}
_INT32_MAX = torch.iinfo(torch.int32).max
_TYPES = (torch.Tensor, torch.nn.Parameter)


def _raise_each(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


# By versions autograd sees that what a backward pass needs was overwritten.
raise_versions: Callable[[Sequence[torch.Tensor]], None] = _raise_each
with contextlib.suppress(AttributeError, TypeError):  # of torch before 2.7, which takes one tensor
    torch._C._increment_version((torch.empty(0),))
    raise_versions = torch._C._increment_version  # the public function takes as long as a small allreduce


def _describe(tensor: torch.Tensor) -> Spec | None:
    try:
        if tensor.is_contiguous() and tensor.is_cpu:
            dtype = _PLAIN_DTYPES.get(tensor.dtype)
            if dtype is not None and not tensor.is_neg():
                address = tensor.data_ptr()
                if address:  # 0: empty, or without memory of its own, as a DTensor
                    size = tensor.nbytes
                    return (address, address, dtype, tensor.shape, size, size)
    except (AttributeError, RuntimeError):
        pass  # no tensor, or one without memory: `place` says which
    return None


describe: Callable[[torch.Tensor], Spec | None] = _describe
"""See TensorGlue. Creates no tensor."""
with contextlib.suppress(AttributeError):  # an older torch
    _exchange = torch.Tensor.__dlpack_c_exchange_api__
    describe = describer(_exchange, _TYPES, _describe)


def place(tensor: torch.Tensor, result: Result, purpose: Purpose) -> Placement[torch.Tensor]:
    """See TensorGlue."""
    check(tensor, result)
    if tensor.dtype in COMPLEX:
        return as_pairs(tensor, result, purpose, place)
    if result is Result.IN_PLACE and purpose.raises_versions:
        raise_versions((tensor,))
    return on_host(tensor, result) if tensor.is_cpu else on_devices([tensor], result, purpose)[0]


def place_group(
    tensors: Sequence[torch.Tensor], result: Result, purpose: Purpose
) -> list[Placement[torch.Tensor]]:
    """See TensorGlue."""
    for tensor in tensors:
        check(tensor, result)
    if any(tensor.is_cpu or tensor.dtype in COMPLEX for tensor in tensors):
        return [place(tensor, result, purpose) for tensor in tensors]
    if result is Result.IN_PLACE and purpose.raises_versions:
        raise_versions(tensors)
    return on_devices(tensors, result, purpose) if tensors else []


def check(tensor: Any, result: Result) -> None:
    """Raises unless the tensor can take part in an operation whose result goes to ``result``."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"Expected a torch.Tensor, not {type(tensor).__name__}.")
    if torch.nn.parameter.is_lazy(tensor):
        raise ValueError(
            "A parameter of a lazy layer has no shape yet: send one batch through the model first, on all "
            "ranks, before hvd.broadcast_parameters and hvd.DistributedOptimizer."
        )
    if hasattr(tensor, "to_local"):
        raise ValueError(
            f"A {type(tensor).__name__} is spread over the ranks already: give its to_local() or its "
            "full_tensor()."
        )
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise ValueError(f"Tensor of layout {tensor.layout} is not supported; convert it with to_dense().")
    if tensor.dtype not in DTYPES and tensor.dtype not in COMPLEX:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if tensor.device.type == "meta":
        raise ValueError("A tensor on the meta device has no content to send; materialise it first.")
    if result is Result.IN_PLACE and overlaps(tensor):
        raise ValueError("Tensor is required to be contiguous: its elements share memory (an expanded view).")


def from_bytes(data: bytes) -> torch.Tensor:
    """See TensorGlue."""
    if not data:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def to_bytes(tensor: torch.Tensor) -> bytes:
    """See TensorGlue."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() > 0 else b""


class TorchGlue(TensorGlue[torch.Tensor]):
    """Describes, places and makes torch tensors."""

    describe = staticmethod(describe)  # type: ignore[assignment]  # whose parameter has no name
    place = staticmethod(place)
    place_group = staticmethod(place_group)
    from_bytes = staticmethod(from_bytes)
    to_bytes = staticmethod(to_bytes)
    overwrites = staticmethod(raise_versions)

    def empty_like(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        if type(tensor) in _TYPES:  # of others the result would be one, too
            output = torch.empty_like(tensor)  # in a third of the time
        else:
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
        if tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() > 1):
            return tensor * factor
        return (tensor.double() * factor).to(tensor.dtype)  # integers, and floats that torch only converts

    def equals(self, tensor: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
        return (tensor == other).to(tensor.dtype)

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

    def zeroed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.masked_fill(torch.ones((), dtype=torch.bool, device=tensor.device), 0)

    def records_gradient(self, tensor: torch.Tensor) -> bool:
        if not isinstance(tensor, torch.Tensor):
            return False
        return (tensor.requires_grad and torch.is_grad_enabled()) or _has_tangent(tensor)


def _has_tangent(tensor: torch.Tensor) -> bool:
    """Whether it is differentiated forward: autograd then says that the operation cannot be, where the result
    would lose its tangent without a word.
    """
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None
