"""Buckets, in any framework: gradients that travel together as one operation. How they are cut, what becomes
of them on the way, and how several are waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from horovod.common.collective.compression import Compressor
from horovod.common.training.gradient_options import Groups, cut_into_groups

_T = TypeVar("_T")


def cut_into_buckets(
    members: Sequence[_T],
    groups: Groups,
    kind: Callable[[_T], Hashable],
    identity: Callable[[Any], int] = id,
    identity_of_member: Callable[[_T], int] = id,
) -> list[list[_T]]:
    """Those of ``members`` that travel together, the groups first, then what travels alone.

    Args:
        members: what is to be cut.
        groups: as ``cut_into_groups`` takes them.
        kind: type and device of a member: one operation has one of each, so groups are cut by them.
        identity: what the lists of ``groups`` hold.
        identity_of_member: which of it a member is.

    Returns:
        The buckets.
    """
    together, alone = cut_into_groups(members, groups, identity, identity_of_member)
    buckets: list[list[_T]] = []
    for group in together:
        parts: dict[Hashable, list[_T]] = {}
        for member in group:
            parts.setdefault(kind(member), []).append(member)
        buckets += parts.values()
    return buckets + [[member] for member in alone]


class Packed:
    """Gradients as they travel: as a plain compressor has made them.

    Attributes:
        tensors: what travels.
    """

    __slots__ = ("_compressor", "_contexts", "tensors")

    def __init__(self, compressor: type[Compressor], gradients: Iterable[Any]) -> None:
        pairs = [compressor.compress(gradient) for gradient in gradients]
        self.tensors = [tensor for tensor, _ in pairs]
        self._contexts = [context for _, context in pairs]
        self._compressor = compressor

    def unpacked(self, reduced: Sequence[Any] | None = None) -> list[Any]:
        """The reduced gradients. ``reduced``: what was made of the tensors, if not in place."""
        pairs = zip(self.tensors if reduced is None else reduced, self._contexts, strict=True)
        return [self._compressor.decompress(tensor, context) for tensor, context in pairs]


def in_rounds(reductions: Iterable[Callable[[], bool]]) -> Iterator[None]:
    """Brings several reductions to their end. All go on to their next operation before any of these is waited
    for, so that the operations travel together. Yields between two rounds. Raises the first error after all
    have come to an end.

    Args:
        reductions: each waits for an operation, starts the next one, and tells whether there is none.
    """
    first_error: Exception | None = None
    pending = list(reductions)
    while pending:
        unfinished = []
        for advance in pending:
            try:
                if not advance():
                    unfinished.append(advance)
            except Exception as error:
                first_error = first_error or error
        pending = unfinished
        if pending:
            yield
    if first_error is not None:
        raise first_error
