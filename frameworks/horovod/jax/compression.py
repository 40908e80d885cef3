"""Compressors for JAX's arrays; only floating-point arrays are touched. See docs/compression.md."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from horovod.common.collective.compression import Compressor, NoneCompressor
from horovod.jax.tensors import as_array

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


def _convert(tensor: Any, dtype: Any) -> tuple[jax.Array, Any]:
    array = as_array(tensor)
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize <= jnp.dtype(dtype).itemsize:
        return array, None  # what is not wider would gain nothing, and lose its range
    return array.astype(dtype), array.dtype


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16, where what is beyond 65504 becomes infinite."""

    @staticmethod
    def compress(tensor: Any) -> tuple[jax.Array, Any]:
        return _convert(tensor, jnp.float16)

    @staticmethod
    def decompress(tensor: jax.Array, ctx: Any) -> jax.Array:
        return tensor if ctx is None else tensor.astype(ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: the range of float32 at the size of float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[jax.Array, Any]:
        return _convert(tensor, jnp.bfloat16)

    @staticmethod
    def decompress(tensor: jax.Array, ctx: Any) -> jax.Array:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
