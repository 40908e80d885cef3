"""torch behind the verbs of TensorGlue."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.tensor_glue import TensorGlue
from horovod.torch import tensors

_INT32_MAX = torch.iinfo(torch.int32).max


class TorchGlue(TensorGlue[torch.Tensor]):
    """Describes, places and makes torch tensors."""

    describe = staticmethod(tensors.describe)
    place = staticmethod(tensors.place)
    from_bytes = staticmethod(tensors.from_bytes)
    to_bytes = staticmethod(tensors.to_bytes)

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
        return tensor * factor

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
