"""The average of numbers over all ranks, for logs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from horovod.common import byte_objects
from horovod.common.basics import size


def mean(values: Mapping[str, float]) -> dict[str, float]:
    """The average of each number over the ranks, sorted by name. ValueError on every rank when the ranks do
    not have the same names.
    """
    mine = {name: float(values[name]) for name in sorted(values)}
    if size() == 1:
        return mine
    gathered = byte_objects.objects.allgather_object(mine, "keras.mean")
    for rank, theirs in enumerate(gathered):
        if theirs.keys() != gathered[0].keys():
            raise ValueError(
                f"The ranks average different numbers: rank 0 has {list(gathered[0])}, rank {rank} has "
                f"{list(theirs)}. Give all ranks the same metrics and validation data."
            )
    return {name: math.fsum(theirs[name] for theirs in gathered) / len(gathered) for name in mine}
