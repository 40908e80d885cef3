"""What the compressors with error feedback have in common: what a step leaves out is added to the next
gradient.

Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", 2019.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from horovod.common.collective.compression import StatefulCompressor
from horovod.common.collective.exchange import Exchange


class ErrorFeedback(StatefulCompressor):
    """Interface for lossy compressors of floating-point gradients; all others travel uncompressed.

    The residual is kept in float32, or in float64 for float64 gradients.
    """

    def __init__(self) -> None:
        self.residual: torch.Tensor | None = None

    def gains(self, gradient: torch.Tensor) -> bool:
        """Whether compressing this gradient saves anything; decided by its shape and type alone, so that all
        ranks decide alike.
        """
        raise NotImplementedError

    def transmit(
        self, total: torch.Tensor, dtype: torch.dtype, name: str | None, exchange: Exchange
    ) -> Generator[int, Any, tuple[torch.Tensor, torch.Tensor]]:
        """Sends as much of ``total``, which is contiguous, as the scheme allows, values as ``dtype`` at most.

        Returns the reduction of what all ranks have sent, and what this rank has sent of it, both of the
        shape and type of ``total``.
        """
        raise NotImplementedError

    def reduce(
        self, gradient: torch.Tensor, name: str | None, exchange: Exchange
    ) -> Generator[int, Any, torch.Tensor]:
        """See StatefulCompressor."""
        gradient = gradient.detach()
        if not gradient.is_floating_point() or not self.gains(gradient):
            return (yield exchange.allreduce_async(gradient, name))
        total = self._with_residual(gradient)
        reduced, sent = yield from self.transmit(total, gradient.dtype, name, exchange)
        # An overflow (which a gradient scaler looks for in the result) must not stay for ever.
        self.residual = (total - sent).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return reduced.to(gradient.dtype)

    def _with_residual(self, gradient: torch.Tensor) -> torch.Tensor:
        wide = torch.float64 if gradient.dtype == torch.float64 else torch.float32
        total = gradient.to(wide).contiguous()
        residual = self.residual
        if residual is None or residual.shape != total.shape:
            return total
        return total + residual.to(total.device, wide)
