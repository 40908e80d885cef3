"""What a compressor is. A plain one shrinks a tensor before it travels and restores it afterwards; a stateful
one carries out the whole reduction of one gradient, in its own way and with a memory of what it left out.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from horovod.common.collective.exchange import Exchange


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


class Packed:
    """Several tensors as they travel: as a plain compressor has made them.

    Attributes:
        tensors: what travels.
    """

    __slots__ = ("_compressor", "_contexts", "tensors")

    def __init__(self, compressor: type[Compressor], tensors: Iterable[Any]) -> None:
        pairs = [compressor.compress(tensor) for tensor in tensors]
        self.tensors = [tensor for tensor, _ in pairs]
        self._contexts = [context for _, context in pairs]
        self._compressor = compressor

    def unpacked(self, reduced: Sequence[Any] | None = None) -> list[Any]:
        """The results: of ``reduced``, or of the tensors themselves, where they were reduced in place."""
        pairs = zip(self.tensors if reduced is None else reduced, self._contexts, strict=True)
        return [self._compressor.decompress(tensor, context) for tensor, context in pairs]


class StatefulCompressor:
    """Interface of compressors whose results cannot simply be added up, or that remember what they left out.

    Users pass the class around; for each gradient one instance is made, without arguments, and kept. Options
    are attributes of the class, set by making a subclass.
    """

    def reduce(self, gradient: Any, name: str | None, exchange: Exchange) -> Generator[int, Any, Any]:
        """Reduces ``gradient`` over the ranks of ``exchange``, by operations of ``exchange``.

        A generator: it starts operations, yields their handles one by one, is sent the result of each, and
        returns the reduced gradient, of the shape and type of ``gradient``, which it must not change. Between
        two yields of one generator those of other gradients run, so that the rounds of all travel together.
        All ranks must start the same operations in one order. ``name`` is the gradient's, or None: the first
        operation has it, so that a rank which has failed can say so in its place, and further ones get theirs
        from ``part``. When an operation fails, its exception is raised at the yield: change the state after
        the last one, because ``reduce`` may be called again with the same gradient.
        """
        raise NotImplementedError


AnyCompressor = type[Compressor] | type[StatefulCompressor]
"""What a ``compression=`` argument takes that is not for plain compressors only."""


def is_stateful(compression: Any) -> bool:
    """Whether it is a class of stateful compressors."""
    return isinstance(compression, type) and issubclass(compression, StatefulCompressor)


def resolve_compression(compression: Any) -> Any:
    """The compressor class to use, plain or stateful (see ``is_stateful``). None means none; anything but a
    class of the one kind or the other is a TypeError.
    """
    if compression is None or compression is NoneCompressor:
        return NoneCompressor
    plain = hasattr(compression, "compress") and hasattr(compression, "decompress")
    if isinstance(compression, type) and is_stateful(compression):
        return compression
    if isinstance(compression, type) and plain:
        return compression if compression.__module__.startswith("horovod.") else _summable(compression)
    raise TypeError(
        "compression must be a compressor class such as hvd.Compression.fp16, "
        f"not {type(compression).__name__}; options are given by configure, as in "
        "hvd.Compression.topk.configure(ratio=0.01)"
    )


_RESTORED = object()  # the context of what was decompressed before it travelled


@functools.cache
def _summable(compressor: Any) -> type[Compressor]:
    """A compressor of the user, whose tensors can be added up: what it makes integers of is decompressed
    before it travels, and saves nothing. Sums of integers overflow, and their averages are truncated; and
    each rank may have a scale of its own.
    """

    class Summable(Compressor):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            sent, context = compressor.compress(tensor)
            if _has_integers(sent) and not _has_integers(tensor):
                return compressor.decompress(sent, context), _RESTORED
            return sent, context

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor if ctx is _RESTORED else compressor.decompress(tensor, ctx)

    Summable.__name__, Summable.__qualname__ = compressor.__name__, compressor.__qualname__
    Summable.__module__ = compressor.__module__
    return Summable


def _has_integers(tensor: Any) -> bool:
    return "int" in str(tensor.dtype)  # all that the types of the frameworks have in common are their names


def resolve_plain_compression(compression: Any, operation: str) -> type[Compressor]:
    """As ``resolve_compression``, for an ``operation`` other than allreduce: stateful compressors are a
    ValueError.
    """
    compressor = resolve_compression(compression)
    if is_stateful(compressor):
        raise ValueError(
            f"{compressor.__name__} cannot compress {operation}; use hvd.Compression.fp16 or bf16"
        )
    return compressor
