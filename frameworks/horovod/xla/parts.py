"""Which tensors of an allreduce start together, where each starts as soon as it is computed."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.common import basics

LEAST_BYTES = 2 << 20
"""Of a part. Smaller ones take longer in all than they gain by their early start."""


def parts_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many of an allreduce's tensors, in turn, make each of its parts.

    Within a host, reducing takes the time of the cores that compute, and what starts early ends no earlier;
    between hosts the network has time of its own.

    Args:
        sizes: of the tensors, in bytes. Of gradients, the last are usually computed first, so the first part
            is the one that may be small.

    Returns:
        The counts; empty: all at once.
    """
    if basics.local_size() == basics.size():  # on all ranks, or on none
        return ()
    parts, room = [0], LEAST_BYTES
    for size in reversed(sizes):
        if room <= 0:
            parts, room = [0, *parts], LEAST_BYTES
        parts[0] += 1
        room -= size
    return tuple(parts) if len(parts) > 1 else ()
