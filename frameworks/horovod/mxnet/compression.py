"""Compressors for MXNet's arrays; only floating-point arrays are touched. See docs/compression.md.

There is no bfloat16: MXNet 1.9.1 has the type, but no way to convert an array to it from Python.
"""

from __future__ import annotations

from typing import Any

import numpy

from horovod.common.collective.compression import Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]

_WIDER = {numpy.dtype("float32"), numpy.dtype("float64")}


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16, where what is beyond 65504 becomes infinite."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        if numpy.dtype(tensor.dtype) not in _WIDER:
            return tensor, None
        return tensor.astype("float16"), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
