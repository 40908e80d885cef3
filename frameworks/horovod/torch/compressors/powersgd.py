"""Matrices of low rank in place of gradients.

Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", 2019.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from horovod.common.collective.exchange import Exchange, part
from horovod.common.reduce_ops import Average
from horovod.torch.compressors.error_feedback import ErrorFeedback

_SEED = 20


class PowerSGDCompressor(ErrorFeedback):
    """Sends n x r and m x r numbers for a gradient of n rows and m columns (all dimensions but the first),
    in two rounds, where r is ``rank``.

    One step of the power method finds the subspace in which the ranks' gradients have most of their sum; it
    begins with the result of the step before. Vectors, and matrices for which n x m is no more than
    (n + m) x r, travel uncompressed.
    """

    rank = 4

    def __init__(self) -> None:
        super().__init__()
        self._right: torch.Tensor | None = None  # m x r, of the step before; the same on all ranks

    @classmethod
    def configure(cls, rank: int = 4) -> type[PowerSGDCompressor]:
        """This compressor for matrices of another rank."""
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, not {rank}")
        return type(cls.__name__, (cls,), {"rank": rank, "__module__": cls.__module__})

    def gains(self, gradient: torch.Tensor) -> bool:
        """See ErrorFeedback."""
        if gradient.dim() < 2 or gradient.numel() == 0:
            return False
        rows, columns = gradient.shape[0], gradient.numel() // gradient.shape[0]
        width = max(gradient.element_size(), torch.float32.itemsize)
        return (rows + columns) * self.rank * width < rows * columns * gradient.element_size()

    def transmit(
        self, total: torch.Tensor, dtype: torch.dtype, name: str | None, exchange: Exchange
    ) -> Generator[int, Any, tuple[torch.Tensor, torch.Tensor]]:
        """See ErrorFeedback."""
        matrix = total.flatten(1)
        # Only the span of the left factor counts; the average overflows later than the sum.
        left = matrix @ self._starting_point(matrix)
        left = yield exchange.allreduce_async(left, name, Average)
        left = torch.linalg.qr(left).Q
        own_right = matrix.T @ left
        right = yield exchange.allreduce_async(own_right, part(name, "right"))
        # After an overflow or a gradient of zeros it would be no start for the next step. All judge alike.
        self._right = right if right.isfinite().all() and right.any() else None
        return (left @ right.T).view_as(total), (left @ own_right.T).view_as(total)

    def _starting_point(self, matrix: torch.Tensor) -> torch.Tensor:
        right = self._right
        if right is None or right.shape[0] != matrix.shape[1]:
            generator = torch.Generator("cpu").manual_seed(_SEED)  # the same numbers on all ranks
            shape = (matrix.shape[1], self.rank)
            right = torch.randn(shape, generator=generator, dtype=matrix.dtype, device="cpu")
        return right.to(matrix.device, matrix.dtype)
