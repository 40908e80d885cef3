"""The names of an optimizer's parameters, and which of them travel together. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from horovod.common.gradient_options import cut_into_groups

NamedParameters = list[tuple[str, torch.Tensor]]


def check_names(
    param_groups: Iterable[dict[str, Any]], named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[int, str]:
    """The name of every parameter, by ``id``. Raises ValueError when names are missing or not unique."""
    positions = {
        id(parameter): f"noname.{group_index}.{index}"
        for group_index, group in enumerate(param_groups)
        for index, parameter in enumerate(group["params"])
    }
    if named_parameters is None:
        return positions
    named = list(named_parameters)
    if any(not isinstance(item, tuple) for item in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    labels = [name for name, _ in named]
    duplicates = (
        sorted({name for name in labels if labels.count(name) > 1}) if len(set(labels)) < len(labels) else []
    )
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    names = {id(parameter): name for name, parameter in named}
    unnamed = [place for key, place in positions.items() if key not in names]
    if unnamed:
        places = ", ".join(place.removeprefix("noname.") for place in unnamed)
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Their positions (group.parameter): {places}"
        )
    return names


def group_parameters(
    parameters: NamedParameters, groups: int | Sequence[Sequence[torch.Tensor]] | None
) -> list[tuple[str, NamedParameters]]:
    """Cuts the parameters into groups with names. ``groups``: None = each alone; a number = so many groups of
    neighbours; lists of parameters = those, and the others each alone. A group holds one type and one device.
    """
    wanted, alone = cut_into_groups(parameters, groups, identity_of_member=lambda member: id(member[1]))
    named = [
        (f"group.{index}.{part}", members)
        for index, group in enumerate(wanted)
        for part, members in enumerate(_uniform(group))
    ]
    return named + [(name, [(name, parameter)]) for name, parameter in alone]


def described(parameters: NamedParameters) -> dict[str, str]:
    """What the ranks compare of parameters, by label."""
    return {
        f"parameter {name!r}": f"{str(p.dtype).removeprefix('torch.')} {list(p.shape)}, "
        + f"requires_grad={p.requires_grad}"
        for name, p in parameters
    }


def _uniform(members: NamedParameters) -> list[NamedParameters]:
    """Cuts a group by type and device, in the order of first appearance."""
    parts: dict[tuple[torch.dtype, torch.device], NamedParameters] = {}
    for name, parameter in members:
        parts.setdefault((parameter.dtype, parameter.device), []).append((name, parameter))
    return list(parts.values())
