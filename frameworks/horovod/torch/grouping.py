"""The names of an optimizer's parameters, and which of them travel together. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from horovod.common.util import split_list

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
    if groups is None or groups == 0:
        return [(name, [(name, parameter)]) for name, parameter in parameters]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of lists of tensors")
        wanted = [list(part) for part in split_list(parameters, groups) if part]
        alone: NamedParameters = []
    else:
        wanted, alone = _by_lists(parameters, groups)
    named = [
        (f"group.{index}.{part}", members)
        for index, group in enumerate(wanted)
        for part, members in enumerate(_uniform(group))
    ]
    return named + [(name, [(name, parameter)]) for name, parameter in alone]


def _by_lists(
    parameters: NamedParameters, lists: Sequence[Sequence[torch.Tensor]]
) -> tuple[list[NamedParameters], NamedParameters]:
    if not isinstance(lists, (list, tuple)) or not all(isinstance(part, (list, tuple)) for part in lists):
        raise ValueError("groups should be a non-negative integer or a list of lists of tensors")
    group_of = {id(parameter): index for index, members in enumerate(lists) for parameter in members}
    if len(group_of) < sum(len(members) for members in lists):
        raise ValueError("A parameter can only appear once in groups")
    wanted: list[NamedParameters] = [[] for _ in lists]
    alone: NamedParameters = []
    for name, parameter in parameters:
        index = group_of.get(id(parameter))
        (alone if index is None else wanted[index]).append((name, parameter))
    return [members for members in wanted if members], alone


def _uniform(members: NamedParameters) -> list[NamedParameters]:
    """Cuts a group by type and device, in the order of first appearance."""
    parts: dict[tuple[torch.dtype, torch.device], NamedParameters] = {}
    for name, parameter in members:
        parts.setdefault((parameter.dtype, parameter.device), []).append((name, parameter))
    return list(parts.values())
