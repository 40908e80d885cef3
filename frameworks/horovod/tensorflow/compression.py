"""Compressors for TensorFlow tensors; only floating-point tensors are touched. See docs/compression.md."""

from __future__ import annotations

import tensorflow as tf

from horovod.common.collective.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


def _convert(tensor: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.DType | None]:
    if not tensor.dtype.is_floating or tensor.dtype.size <= dtype.size:
        return tensor, None  # what is not wider would gain nothing, and lose its range
    return tf.cast(tensor, dtype), tensor.dtype


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16, where what is beyond 65504 becomes infinite."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        return _convert(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: tf.DType | None) -> tf.Tensor:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: the range of float32 at the size of float16."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        return _convert(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: tf.DType | None) -> tf.Tensor:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
