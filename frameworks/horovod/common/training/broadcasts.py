"""Before the tensors of one rank are given to all, the ranks compare what each of them has: one that lacks a
tensor, as of a layer that is made by its first use, would leave the others waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

from horovod.common.exceptions import TensorMismatchError
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.training.differences import Facts, compare


def agree_on_tensors(
    call: str,
    kinds: Facts,
    process_set: ProcessSet,
    problem: str | None = None,
    shown: Mapping[str, str] | None = None,
) -> None:
    """Returns when all ranks have the same tensors, and nothing keeps any of them from sending them. A small
    collective.

    Args:
        call: the user's, as in ``hvd.broadcast_parameters``.
        kinds: by what the ranks match each tensor, and what it is.
        process_set: the ranks.
        problem: what keeps this rank from it; the kinds do not matter then.
        shown: what this rank calls the tensors, if it is not that by which they are matched.

    Raises:
        ValueError: some rank has a problem; on all ranks.
        TensorMismatchError: the tensors differ; on all ranks, with the same text.
    """
    difference = compare(
        kinds, f"{call}(): comparison of the tensors", check_process_set(process_set), problem, shown
    )
    if difference is not None:
        raise TensorMismatchError(
            f"{call}: nothing was sent, because the ranks have different tensors: {difference} Build the "
            "same model on all ranks before the call. Where layers are made by their first use, send one "
            "batch through it first, on all ranks."
        )
