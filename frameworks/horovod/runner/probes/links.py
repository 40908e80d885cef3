"""How fast the links between hosts are, measured one after the other."""

import os
import time
from collections.abc import Mapping

from horovod.common import basics
from horovod.common.collective.byte_objects import objects, operations

_BYTES = 8 << 20
_ROUNDS = 3
_MOST_PAIRS = 64


def own_host() -> str:
    """Its name, as the launcher has it."""
    return os.environ.get("HOROVOD_HOSTNAME") or os.uname().nodename


def measured(names: Mapping[int, str]) -> Mapping[tuple[str, str], float]:
    """Bytes for each second over the links between the ranks that are named: of all pairs, or of a ring.

    All ranks of the job call it together.
    """
    ranks = list(names)
    pairs = [(one, other) for at, one in enumerate(ranks) for other in ranks[at + 1 :]]
    if len(pairs) > _MOST_PAIRS:
        pairs = list(zip(ranks, ranks[1:] + ranks[:1], strict=True))
    data, own = bytearray(_BYTES), {}
    for pair in pairs:
        operations.barrier()
        if basics.rank() in pair:
            own[pair] = min(_seconds(data, pair) for _ in range(_ROUNDS))
    merged: dict[tuple[int, int], float] = {}
    for found in objects.allgather_object(own):
        merged |= {pair: max(seconds, merged.get(pair, 0.0)) for pair, seconds in found.items()}
    return {(names[one], names[other]): 2 * _BYTES / seconds for (one, other), seconds in merged.items()}


def _seconds(data: bytearray, pair: tuple[int, int]) -> float:
    """There and back."""
    one, other = pair
    begin = time.monotonic()
    if basics.rank() == one:
        operations.send(data, other)
        operations.recv(data, other)
    else:
        operations.recv(data, one)
        operations.send(data, one)
    return time.monotonic() - begin
