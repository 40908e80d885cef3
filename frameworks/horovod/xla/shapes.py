"""The shapes of results in functions that XLA compiles: they must be known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.common.collective.operations import ALLGATHER, ALLTOALL, REDUCESCATTER
from horovod.common.process_sets import ProcessSet

Shape = tuple[int, ...]

_BY_ROWS = {ALLGATHER: "allgather", ALLTOALL: "alltoall", REDUCESCATTER: "reducescatter"}


def result_shapes(kind: int, shapes: Sequence[Shape], process_set: ProcessSet) -> list[Shape]:
    """The shapes of the results on this rank, where all ranks bring tensors of equal shapes.

    Args:
        kind: of the operation, a number of the core.
        shapes: of its tensors.
        process_set: the ranks that take part.

    Raises:
        ValueError: a scalar, for an operation that goes by the first dimension; rows that an alltoall cannot
            share equally.
    """
    if kind not in _BY_ROWS:
        return list(shapes)
    if not all(shapes):
        name = _BY_ROWS[kind]
        raise ValueError(f"{name} goes by the first dimension and a scalar has none; reshape it to (1,).")
    size, place = process_set.size() or 1, process_set.rank() or 0
    if kind == ALLTOALL and shapes[0][0] % size:
        raise ValueError(f"alltoall cannot share {shapes[0][0]} rows equally among {size} ranks.")
    if kind == ALLGATHER:
        return [(shape[0] * size, *shape[1:]) for shape in shapes]
    if kind == REDUCESCATTER:
        return [(shape[0] // size + (place < shape[0] % size), *shape[1:]) for shape in shapes]
    return list(shapes)
