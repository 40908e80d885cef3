"""How gradients are reduced, as every distributed optimizer, gradient tape and trainer is told by its keyword
arguments.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Any, TypeVar

from horovod.common.basics import size
from horovod.common.collective.compression import NoneCompressor, resolve_compression
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Adasum, Average, resolve_op
from horovod.common.util import level_of_the_program, split_list

_T = TypeVar("_T")

Groups = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True, eq=False)
class GradientSettings:
    """How the gradients of one optimizer, gradient tape or trainer are reduced: the keyword arguments that a
    user gives, checked here once and passed on as one value.

    Attributes:
        op: the reduction.
        compression: the compressor class, plain or stateful; None means none.
        gradient_predivide_factor: by what gradients are divided before they are added up; only for Average.
        sparse_as_dense: sparse gradients travel as dense ones.
        groups: what travels together: a number of groups, or lists of parameters.
        process_set: the ranks that train together.
        backward_passes_per_step: how many gradients are summed up locally before they travel.
        average_aggregated_gradients: divides that sum by their number.
        scale_local_gradients: divides gradients that stay on their rank by the number of ranks.
        synchronize_in_backward: a backward pass ends when its gradients are reduced.
        device_dense: where TensorFlow places the operations on dense gradients; empty: where it likes.
        device_sparse: the same of sparse ones.
        num_groups: the deprecated form of ``groups``.

    Raises:
        ValueError: an argument is wrong, or does not go with another one.
        TypeError: ``compression`` is no class of compressors.
    """

    op: int = Average
    compression: Any = NoneCompressor
    gradient_predivide_factor: float = 1.0
    sparse_as_dense: bool = False
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    scale_local_gradients: bool = True
    synchronize_in_backward: bool = False
    device_dense: str = ""
    device_sparse: str = ""
    num_groups: InitVar[int] = 0

    def __post_init__(self, num_groups: int) -> None:
        op = resolve_op(self.op)
        check_predivide(op, self.gradient_predivide_factor)
        check_passes(self.backward_passes_per_step)
        if op == Adasum and self.average_aggregated_gradients:
            raise ValueError("Adasum does not support average_aggregated_gradients=True")
        resolved = {
            "op": op,
            "compression": resolve_compression(self.compression),
            "groups": resolve_groups(self.groups, num_groups),
        }
        for name, value in resolved.items():
            object.__setattr__(self, name, value)

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> GradientSettings:
        """The settings among the arguments of a public function.

        Args:
            arguments: its ``locals()`` when it begins. Those that are no settings are passed over; a setting
                that the function does not take has its default.

        Returns:
            The settings.

        Raises:
            As the class.
        """
        return cls(**{name: arguments[name] for name in _SETTINGS if name in arguments})

    @property
    def prescale(self) -> float:
        """What each gradient is multiplied by before the reduction."""
        return 1.0 / self.gradient_predivide_factor

    @property
    def postscale(self) -> float:
        """What each gradient is multiplied by after the reduction."""
        return self.gradient_predivide_factor

    def facts(self) -> dict[str, str]:
        """What all ranks must have given alike, for ``common.training.agreement``. Nothing of the groups:
        their members have other names in every framework (``groups_text``).
        """
        told = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        of_this_rank = ("device_dense", "device_sparse", "scale_local_gradients")
        for name in ("groups", "process_set", *of_this_rank):
            del told[name]
        return {
            **told,
            "op": OP_NAMES[self.op],
            "compression": self.compression.__qualname__,
            "gradient_predivide_factor": f"{self.gradient_predivide_factor:g}",
        }


_SETTINGS = tuple(inspect.signature(GradientSettings).parameters)


def check_predivide(op: int, gradient_predivide_factor: float) -> None:
    """ValueError for a factor that the reduction ``op`` cannot use."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def check_passes(backward_passes_per_step: int) -> None:
    """ValueError unless at least one pass makes a step."""
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")


def resolve_groups(groups: Groups, num_groups: int) -> Groups:
    """``groups``, or the deprecated ``num_groups`` when only that was given."""
    if num_groups == 0:
        return groups
    warnings.warn(
        "Parameter `num_groups` has been replaced by `groups`.",
        DeprecationWarning,
        stacklevel=level_of_the_program(),
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


def group_name(names: Sequence[str]) -> str:
    """What an operation on the gradients of several variables is called, by their own names: a report of what
    a rank has not submitted shows it.
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def groups_text(groups: Groups, positions: dict[int, int], identity: Callable[[Any], int] = id) -> str:
    """``groups`` as a text that is equal on all ranks. ``positions`` of their members, by identity."""
    if groups is None or isinstance(groups, int):
        return str(groups or None)
    return str([[positions.get(identity(each), "another") for each in part] for part in groups])


def _wrong_groups() -> ValueError:
    return ValueError("groups should be a non-negative integer or a list of lists of tensors")
