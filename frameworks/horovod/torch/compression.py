"""Compressors for torch tensors; only floating-point tensors are touched. See docs/compression.md."""

from __future__ import annotations

import torch

from horovod.common.collective.compression import Compressor, NoneCompressor, StatefulCompressor
from horovod.torch.compressors.int8 import Int8Compressor
from horovod.torch.compressors.powersgd import PowerSGDCompressor
from horovod.torch.compressors.topk import TopKCompressor

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8Compressor",
    "NoneCompressor",
    "PowerSGDCompressor",
    "StatefulCompressor",
    "TopKCompressor",
]


def _convert(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.dtype | None]:
    if not tensor.dtype.is_floating_point or tensor.element_size() <= dtype.itemsize:
        return tensor, None  # what is not wider would gain nothing, and lose its range
    return tensor.to(dtype), tensor.dtype


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16, where what is beyond 65504 becomes infinite."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        return _convert(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: the range of float32 at the size of float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        return _convert(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
    topk = TopKCompressor
    powersgd = PowerSGDCompressor
