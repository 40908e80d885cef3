"""Only the elements of greatest magnitude."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from horovod.common.collective.exchange import Exchange
from horovod.torch.compressors.error_feedback import ErrorFeedback

_INT32_ELEMENTS = 2**31


class TopKCompressor(ErrorFeedback):
    """Sends the share ``ratio`` of the elements, at least one, each with its index; the rest waits in the
    residual until it has grown.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", 2017.
    """

    ratio = 0.01

    @classmethod
    def configure(cls, ratio: float = 0.01) -> type[TopKCompressor]:
        """This compressor for another share of the elements, above 0 and up to 1."""
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must be above 0 and at most 1, not {ratio}")
        return type(cls.__name__, (cls,), {"ratio": float(ratio), "__module__": cls.__module__})

    def gains(self, gradient: torch.Tensor) -> bool:
        """See ErrorFeedback."""
        count = gradient.numel()
        width = gradient.element_size()
        return count > 0 and self._kept(count) * (width + _index_type(count).itemsize) < count * width

    def transmit(
        self, total: torch.Tensor, dtype: torch.dtype, name: str | None, exchange: Exchange
    ) -> Generator[int, Any, tuple[torch.Tensor, torch.Tensor]]:
        """See ErrorFeedback."""
        flat = total.flatten()
        indices = flat.abs().topk(self._kept(flat.numel()), sorted=False).indices
        values = _within(flat[indices], dtype)
        indices = indices.to(_index_type(flat.numel()))
        payload = torch.cat([indices.view(torch.uint8), values.view(torch.uint8)])
        gathered = yield exchange.allgather_async(payload.unsqueeze(0), name)
        reduced = torch.zeros_like(flat)
        at = indices.numel() * indices.element_size()
        # A rank's indices differ from each other, so each addition is exact in its order on every device.
        for row in gathered:
            theirs = row[at:].clone().view(dtype).to(flat.dtype)
            reduced.index_add_(0, row[:at].clone().view(indices.dtype), theirs)
        sent = torch.zeros_like(flat).index_copy_(0, indices.long(), values.to(flat.dtype))
        return exchange.of_sum(reduced).view_as(total), sent.view_as(total)

    def _kept(self, count: int) -> int:
        return max(1, int(self.ratio * count))


def _index_type(count: int) -> torch.dtype:
    return torch.int32 if count < _INT32_ELEMENTS else torch.int64


def _within(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As ``dtype``. What the residual has made too large for it becomes its largest number, and the rest
    waits; what the gradient has that is infinite stays so, for a gradient scaler to see.
    """
    largest = torch.finfo(dtype).max
    return torch.where(values.isfinite(), values.clamp(-largest, largest), values).to(dtype)
