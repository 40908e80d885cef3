"""What a compressor is: it shrinks a tensor before it travels and restores it afterwards."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Interface. Both methods are static; the compressor is passed around as a class, never as an
    instance.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send and a context that ``decompress`` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Restores the type that ``tensor`` had before ``compress``."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def resolve_compression(compression: Any) -> type[Compressor]:
    """The compressor to use. None means none; anything but a class with the two methods is a TypeError."""
    if compression is None:
        return NoneCompressor
    if (
        isinstance(compression, type)
        and hasattr(compression, "compress")
        and hasattr(compression, "decompress")
    ):
        return compression
    raise TypeError(
        "compression must be a compressor class such as hvd.Compression.fp16, "
        f"not {type(compression).__name__}"
    )
