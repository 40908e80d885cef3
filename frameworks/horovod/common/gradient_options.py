"""The options of distributed optimizers and gradient tapes, as every adapter takes them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from horovod.common.basics import size
from horovod.common.compression import Compressor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Average
from horovod.common.util import split_list

_T = TypeVar("_T")

Groups = int | Sequence[Sequence[Any]] | None


def check_predivide(op: int, gradient_predivide_factor: float) -> None:
    """ValueError for a factor that the reduction ``op`` cannot use."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def check_passes(backward_passes_per_step: int) -> None:
    """ValueError unless at least one pass makes a step."""
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")


def resolve_groups(groups: Groups, num_groups: int, stacklevel: int = 3) -> Groups:
    """``groups``, or the deprecated ``num_groups`` when only that was given."""
    if num_groups == 0:
        return groups
    warnings.warn(
        "Parameter `num_groups` has been replaced by `groups`.", DeprecationWarning, stacklevel=stacklevel
    )
    return num_groups if groups is None else groups


def takes_part(process_set: ProcessSet) -> bool:
    """Whether this rank has others to reduce gradients with, or may come to have them."""
    if process_set is global_process_set:
        included, members = True, size()
    else:
        if not isinstance(process_set, ProcessSet) or process_set.included() is None:
            check_process_set(process_set)  # raises
        included, members = bool(process_set.included()), process_set.size() or 0
    return included and (members > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")


def cut_into_groups(
    members: Sequence[_T],
    groups: Groups,
    identity: Callable[[Any], int] = id,
    identity_of_member: Callable[[_T], int] = id,
) -> tuple[list[list[_T]], list[_T]]:
    """Those of ``members`` that travel together, and those that travel alone.

    ``groups``: None or 0 = each alone; a number = so many groups of neighbours; lists = those, and all others
    alone. ``identity`` tells what the lists hold, ``identity_of_member`` which of it a member is. ValueError
    for anything else, and for what is in two groups.
    """
    if groups is None or groups == 0:
        return [], list(members)
    if isinstance(groups, int):
        if groups < 0:
            raise _wrong_groups()
        return [list(part) for part in split_list(members, groups) if part], []
    if not isinstance(groups, (list, tuple)) or not all(isinstance(part, (list, tuple)) for part in groups):
        raise _wrong_groups()
    group_of = {identity(each): index for index, part in enumerate(groups) for each in part}
    if len(group_of) < sum(len(part) for part in groups):
        raise ValueError("A parameter can only appear once in groups")
    wanted: list[list[_T]] = [[] for _ in groups]
    alone: list[_T] = []
    for member in members:
        index = group_of.get(identity_of_member(member))
        (alone if index is None else wanted[index]).append(member)
    return [part for part in wanted if part], alone


def settings_facts(
    op: int,
    compression: type[Compressor] | None,
    gradient_predivide_factor: float,
    **more: Any,
) -> dict[str, str]:
    """How gradients are reduced, as facts for ``horovod.common.agreement``."""
    return {
        "op": OP_NAMES[op],
        "compression": "none" if compression is None else compression.__name__,
        "gradient_predivide_factor": str(float(gradient_predivide_factor)),
        **{label: str(value) for label, value in more.items()},
    }


def groups_text(groups: Groups, positions: dict[int, int], identity: Callable[[Any], int] = id) -> str:
    """``groups`` as a text that is equal on all ranks. ``positions`` of their members, by identity."""
    if groups is None or isinstance(groups, int):
        return str(groups or None)
    return str([[positions.get(identity(each), "another") for each in part] for part in groups])


def _wrong_groups() -> ValueError:
    return ValueError("groups should be a non-negative integer or a list of lists of tensors")
