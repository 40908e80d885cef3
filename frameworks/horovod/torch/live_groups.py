"""Which gradient group each parameter belongs to, over all optimizers that are alive.

The optimizer that was made last reduces the gradients of its parameters. An older one that trains some of
them too goes on with the groups of the newer, so that each gradient is reduced once for both, if both reduce
in the same way; otherwise it is *detached*: it reduces nothing any more, and its next step says so.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from horovod.torch.gradient_groups import GradientGroup, complete_all
from horovod.torch.gradient_hooks import Reduction
from horovod.torch.operations import ops


class Owner(Protocol):
    """What an optimizer has to do with its groups."""

    reduction: Reduction
    groups: list[GradientGroup]
    detached: bool


_by_parameter: dict[int, GradientGroup] = {}
_owners: list[Owner] = []

shared: set[GradientGroup] = set()
"""The groups that several optimizers step with."""


def register(owner: Owner) -> None:
    """For an optimizer that has just been made."""
    _owners.append(owner)


def adopt(owner: Owner, groups: list[GradientGroup]) -> None:
    """Gives ``owner`` new groups, and their parameters to them, whichever groups those belonged to before."""
    former = {before for new in groups for hook in new.members if (before := group_of(hook.parameter))}
    with contextlib.suppress(Exception):  # what is in flight is of a step that its optimizer will not make
        complete_all(former)
    losers = [(other, found) for other in _owners if (found := _taken_from(other, groups))]
    owner.groups += groups
    for group in groups:
        for hook in group.members:
            _take_over(hook.parameter)
            _by_parameter[id(hook.parameter)] = group
            hook.registration = hook.parameter.register_post_accumulate_grad_hook(hook)
    for other, found in losers:
        if other is not owner:
            _follow(other, owner, found)


def release(owner: Owner) -> None:
    """For an optimizer that is gone: otherwise the parameters would go on reporting to it."""
    if owner in _owners:
        _owners.remove(owner)
    for group in owner.groups:
        _leave(group)
    owner.groups.clear()


def retire(owner: Owner, group: GradientGroup) -> None:
    """Takes a group from ``owner``, because its parameters are no longer trained."""
    owner.groups.remove(group)
    _leave(group)


def group_of(parameter: object) -> GradientGroup | None:
    """The group that reduces the gradient of ``parameter``."""
    return _by_parameter.get(id(parameter))


def _taken_from(older: Owner, groups: list[GradientGroup]) -> list[GradientGroup]:
    """Those of the new ``groups`` that take parameters from ``older``."""
    own = set(older.groups)
    return [group for group in groups if any(group_of(hook.parameter) in own for hook in group.members)]


def _take_over(parameter: Any) -> None:
    before = group_of(parameter)
    if before is None:
        return
    for hook in before.members:
        if hook.parameter is parameter and hook.registration is not None:
            hook.registration.remove()
    before.drop(parameter)


def _follow(older: Owner, newer: Owner, groups: list[GradientGroup]) -> None:
    """``older`` has lost parameters to ``groups``."""
    if not older.reduction.same_as(newer.reduction):
        older.detached = True
        release(older)
        return
    for empty in [group for group in older.groups if not group.members]:
        older.groups.remove(empty)
        shared.discard(empty)
    for group in groups:
        older.groups.append(group)
        group.users += 1
        shared.add(group)


def _leave(group: GradientGroup) -> None:
    group.users -= 1
    if group.users <= 1:
        shared.discard(group)
    if group.users == 0:
        if group.handle is not None:  # of a step that will not be made
            ops.drop(group.handle)
        for hook in group.members:
            del _by_parameter[id(hook.parameter)]
            if hook.registration is not None:
                hook.registration.remove()
