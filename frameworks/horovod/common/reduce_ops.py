"""The reductions, as the plain integers that scripts compare and print."""

from __future__ import annotations

import warnings

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

OP_NAMES = {Average: "Average", Sum: "Sum", Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """The reduction that the pair ``op`` and (deprecated) ``average`` asks for.

    Args:
        op: a reduction, or None.
        average: True for Average, False for Sum, or None.

    Returns:
        The reduction; Average when neither is given.

    Raises:
        ValueError: both are given.
    """
    if op is not None:
        if average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        return op
    if average is None:
        return Average
    from horovod.common.util import level_of_the_program

    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed; use op=hvd.Average or hvd.Sum",
        DeprecationWarning,
        stacklevel=level_of_the_program(),
    )
    return Average if average else Sum


def resolve_op(op: int | None, average: bool | None = None) -> int:
    """The reduction to run.

    Args:
        op: a reduction, or None.
        average: the deprecated form.

    Returns:
        The reduction; Average when neither is given.

    Raises:
        ValueError: ``op`` is none, or both are given.
    """
    resolved = handle_average_backwards_compatibility(op, average)
    if resolved in OP_NAMES:
        return resolved
    raise ValueError(f"op={resolved!r} is not a reduction; use hvd.Average, Sum, Adasum, Min, Max or Product")
