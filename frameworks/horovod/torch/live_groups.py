"""The gradient groups of all optimizers that are alive: their names are unique within a process set, and a
parameter that several optimizers train is reduced once for all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Sequence

import torch

from horovod.common import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch.gradient_groups import GradientGroup
from horovod.torch.gradient_hooks import Reduction
from horovod.torch.grouping import NamedParameters

_PREFIX = "DistributedOptimizer"

_by_name: dict[tuple[ProcessSet, str], GradientGroup] = {}
_by_parameter: dict[int, GradientGroup] = {}

shared: set[GradientGroup] = set()
"""The groups that several optimizers step with."""


def share(
    parameters: NamedParameters, reduction: Reduction, present: Collection[GradientGroup]
) -> list[GradientGroup]:
    """The groups of other optimizers that reduce some of ``parameters`` already, but for those ``present``;
    one more uses them from now on. ValueError when they are reduced in another way than ``reduction``.
    """
    found = _groups_of(parameters, present)
    if found:
        gc.collect()  # what is left of optimizers that the program no longer has
        found = _groups_of(parameters, present)
    for group, name in found.items():
        if not group.reduction.same_as(reduction):
            raise ValueError(
                f"The gradient of {name!r} is reduced by another DistributedOptimizer, with other settings "
                "(op, predivide factor, compression, passes, process set). Give both the same, or delete the "
                "other."
            )
    for group in found:
        if group.users == 1:
            group.rounds = 0
        group.users += 1
        shared.add(group)
    return list(found)


def make(wanted: Sequence[tuple[str, NamedParameters]], reduction: Reduction) -> list[GradientGroup]:
    """New groups; their hooks are on the parameters until the last optimizer that uses them releases them."""
    if any((reduction.process_set, f"{_PREFIX}.{name}") in _by_name for name, _ in wanted):
        gc.collect()
    return [_make(name, parameters, reduction) for name, parameters in wanted]


def release(groups: Iterable[GradientGroup]) -> None:
    """For an optimizer that is gone: otherwise the parameters would go on reporting to it."""
    for group in groups:
        group.users -= 1
        if group.users <= 1:
            shared.discard(group)
        if group.users == 0:
            del _by_name[group.reduction.process_set, group.name]
            for hook, registration in zip(group.members, group.registrations, strict=True):
                del _by_parameter[id(hook.parameter)]
                registration.remove()


def reduces(parameter: torch.Tensor) -> bool:
    """Whether an optimizer that is alive reduces the gradient of ``parameter``."""
    return id(parameter) in _by_parameter


def _make(name: str, parameters: NamedParameters, reduction: Reduction) -> GradientGroup:
    group = GradientGroup(_free_name(name, reduction.process_set), parameters, reduction)
    _by_name[reduction.process_set, group.name] = group
    for hook in group.members:
        _by_parameter[id(hook.parameter)] = group
        group.registrations.append(hook.parameter.register_post_accumulate_grad_hook(hook))
    return group


def _groups_of(parameters: NamedParameters, present: Collection[GradientGroup]) -> dict[GradientGroup, str]:
    found = {_by_parameter[id(parameter)]: name for name, parameter in parameters if reduces(parameter)}
    return {group: name for group, name in found.items() if group not in present}


def _free_name(name: str, process_set: ProcessSet) -> str:
    """Equal on all ranks of the set as long as all make their optimizers in one order."""
    number, free = 1, f"{_PREFIX}.{name}"
    while (process_set, free) in _by_name:
        number += 1
        free = f"{_PREFIX}#{number}.{name}"
    return free


def forget_agreements() -> None:
    """After shutdown: the ranks of the next job need not be those that agreed."""
    for group in _by_name.values():
        for hook in group.members:
            hook.forget()


basics.on_shutdown(forget_agreements)
