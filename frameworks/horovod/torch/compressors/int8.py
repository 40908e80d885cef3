"""Eight bits per element. A *block* is a run of elements that share a *scale*: its greatest magnitude
over 127.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from horovod.common.collective.exchange import Exchange
from horovod.torch.compressors.error_feedback import ErrorFeedback

BLOCK = 1024
_GREATEST = 127


class Int8Compressor(ErrorFeedback):
    """Sends int8 and a float32 scale per block of 1024 elements: 3.98 times fewer bytes than float32.

    Numbers of different scales cannot be added up, so each rank gathers what all have sent and adds up in
    float32, in rank order: the same bits on every rank.
    """

    def gains(self, gradient: torch.Tensor) -> bool:
        """See ErrorFeedback."""
        return gradient.numel() * (gradient.element_size() - 1) > 4 * _blocks(gradient.numel())

    def transmit(
        self, total: torch.Tensor, dtype: torch.dtype, name: str | None, exchange: Exchange
    ) -> Generator[int, Any, tuple[torch.Tensor, torch.Tensor]]:
        """See ErrorFeedback."""
        payload, sent = quantise(total.flatten())
        gathered = yield exchange.allgather_async(payload.unsqueeze(0), name)
        reduced = torch.zeros(total.numel(), dtype=torch.float32, device=total.device)
        for row in gathered:
            reduced += dequantise(row, total.numel())
        return exchange.of_sum(reduced).to(total.dtype).view_as(total), sent.to(total.dtype).view_as(total)


def quantise(flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes that travel, as int8: the scales, then the elements; and what the receivers make of them.

    A block with an infinity or a NaN arrives as NaN.
    """
    padded = torch.nn.functional.pad(flat.float(), (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
    scales = padded.abs().amax(dim=1, keepdim=True) / _GREATEST
    # What a scale of 0, infinity or NaN leaves is no number, and must be one before it becomes an int8.
    elements = (padded / scales).round_().nan_to_num_(nan=0.0, posinf=_GREATEST, neginf=-_GREATEST)
    elements = elements.clamp_(-_GREATEST, _GREATEST).to(torch.int8).flatten()[: flat.numel()]
    payload = torch.cat([scales.flatten().view(torch.int8), elements])
    return payload, dequantise(payload, flat.numel())


def dequantise(payload: torch.Tensor, count: int) -> torch.Tensor:
    """The ``count`` elements that ``payload`` stands for, in float32."""
    at = 4 * _blocks(count)
    scales = payload[:at].clone().view(torch.float32)  # a row need not begin where a float32 may lie
    elements = torch.nn.functional.pad(payload[at:], (0, -count % BLOCK)).view(-1, BLOCK)
    return (elements.float() * scales.unsqueeze(1)).flatten()[:count]


def _blocks(count: int) -> int:
    return -(-count // BLOCK)
