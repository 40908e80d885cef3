"""An optimizer's state, described so that another rank can build the same: an *outline* is the state and the
options of the parameter groups in which every tensor is replaced by what is needed to make one like it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from horovod.torch.layouts import lies_as
from horovod.torch.wrapping import GROUP_NAMES, WrappedOptimizer, known_names, present_parameters


class TensorOutline(NamedTuple):
    """Stands for a tensor. ``on_parameter``: it lies where the parameter lies, otherwise in host memory."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    on_parameter: bool


class OptimizerOutline(NamedTuple):
    """``groups``: the options of each parameter group, with its number of parameters; ``states``: for each
    parameter, in the order of the groups, its state, or None where there is none; ``others``: the state that
    belongs to no parameter; ``names`` and ``shapes`` of the parameters, in the order of the states, as far as
    they are known.
    """

    groups: list[tuple[int, dict[str, Any]]]
    states: list[dict[Any, Any] | None]
    others: dict[Any, Any]
    names: list[str] | None = None
    shapes: list[tuple[int, ...]] | None = None


def outline(optimizer: torch.optim.Optimizer) -> OptimizerOutline:
    """The outline of the optimizer's present state."""
    return _described(optimizer, _outline_of)


def problems_with(optimizer: torch.optim.Optimizer, described: OptimizerOutline) -> str | None:
    """Why the outline of another rank cannot be this optimizer's; None if it can."""
    mine = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [count for count, _ in described.groups]
    if mine != theirs:
        return f"it has groups of {mine} parameters, the root's has {theirs}"
    matched = _matched(optimizer, described)
    if matched is None:
        return "the names of the parameters of its groups are not those of the root's"
    for number, (parameter, shape) in enumerate(zip(matched, described.shapes or (), strict=False)):
        if parameter.shape != shape:
            return (
                f"its parameter number {number} has the shape {list(parameter.shape)}, the root's "
                f"{list(shape)}; make it of a list, because a set has another order in each process"
            )
    return None


def _matched(optimizer: torch.optim.Optimizer, described: OptimizerOutline) -> list[torch.Tensor] | None:
    """The parameters to which the states belong, in their order: by name where both sides know names,
    otherwise by place. None if a group has other names.
    """
    own, names = present_parameters(optimizer.param_groups), known_names(optimizer)
    if names is None or described.names is None:
        return own
    counts = [count for count, _ in described.groups]
    if any(set(a) != set(b) for a, b in zip(_cut(names, counts), _cut(described.names, counts), strict=True)):
        return None
    by_name = dict(zip(names, own, strict=True))
    return [by_name[name] for name in described.names]


def _cut(names: list[str], counts: list[int]) -> list[list[str]]:
    ends = list(itertools.accumulate(counts))
    return [names[end - count : end] for end, count in zip(ends, counts, strict=True)]


def assign(optimizer: torch.optim.Optimizer, described: OptimizerOutline) -> list[torch.Tensor]:
    """Makes the optimizer's state and options those of the outline and returns their tensors, in its order:
    the present ones where they fit, new ones elsewhere. Their content is the caller's business.
    """
    _drop_provisional(optimizer)
    tensors: list[torch.Tensor] = []
    for group, (_, options) in zip(optimizer.param_groups, described.groups, strict=True):
        present = _options(group)
        for key in present.keys() - options.keys():
            del group[key]
        group.update(_build(options, present, None, tensors))
    for parameter, state in zip(_matched(optimizer, described) or (), described.states, strict=True):
        if state is None:
            optimizer.state.pop(parameter, None)
        else:
            optimizer.state[parameter] = _build(state, optimizer.state.get(parameter), parameter, tensors)
    others = _others(optimizer)
    for key in others.keys() - described.others.keys():
        del optimizer.state[key]
    optimizer.state.update(_build(described.others, others, None, tensors))
    return tensors


def outline_and_tensors(optimizer: torch.optim.Optimizer) -> tuple[OptimizerOutline, list[torch.Tensor]]:
    """The outline of the optimizer's present state, and its tensors, in the order of ``assign``."""
    tensors: list[torch.Tensor] = []

    def note(tensor: torch.Tensor, parameter: torch.Tensor | None) -> TensorOutline:
        tensors.append(tensor)
        return _outline_of(tensor, parameter)

    return _described(optimizer, note), tensors


def _described(optimizer: torch.optim.Optimizer, describe: Callable[..., TensorOutline]) -> OptimizerOutline:
    _drop_provisional(optimizer)

    def told(value: Any, parameter: torch.Tensor | None = None) -> Any:
        return mapped(value, torch.Tensor, lambda tensor: describe(tensor, parameter))

    groups = [(len(group["params"]), told(_options(group))) for group in optimizer.param_groups]
    parameters = present_parameters(optimizer.param_groups)
    states = [told(optimizer.state[p], p) if p in optimizer.state else None for p in parameters]
    others = told(_others(optimizer))
    shapes = [tuple(parameter.shape) for parameter in parameters]
    return OptimizerOutline(groups, states, others, known_names(optimizer), shapes)


def _drop_provisional(optimizer: torch.optim.Optimizer) -> None:
    """No rank has state that no step has made: neither sends it nor loses it in its next step."""
    if isinstance(optimizer, WrappedOptimizer):
        optimizer._drop_provisional()


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: group[key] for key in group if key not in ("params", GROUP_NAMES)}


def _others(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    return {key: value for key, value in optimizer.state.items() if not isinstance(key, torch.Tensor)}


def _outline_of(tensor: torch.Tensor, parameter: torch.Tensor | None) -> TensorOutline:
    on_parameter = parameter is not None and tensor.device.type != "cpu"
    return TensorOutline(tuple(tensor.shape), tensor.dtype, on_parameter)


def mapped(value: Any, kind: type, make: Callable[[Any], Any]) -> Any:
    """``value`` with what ``make`` returns in place of all of a ``kind`` in it."""
    if isinstance(value, kind):
        return make(value)
    if isinstance(value, dict):
        return {key: mapped(item, kind, make) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(item, kind, make) for item in value)
    return value


def _build(described: Any, present: Any, parameter: torch.Tensor | None, tensors: list[torch.Tensor]) -> Any:
    """The value that ``described`` outlines, reusing tensors of ``present``, the value that this rank has."""
    if isinstance(described, TensorOutline):
        tensors.append(_tensor(described, present, parameter))
        return tensors[-1]
    if isinstance(described, dict):
        had = present if isinstance(present, dict) else {}
        return {key: _build(item, had.get(key), parameter, tensors) for key, item in described.items()}
    if isinstance(described, (list, tuple)) and not hasattr(described, "_fields"):
        fits = isinstance(present, (list, tuple)) and len(present) == len(described)
        items = present if fits else [None] * len(described)
        return type(described)(
            _build(item, old, parameter, tensors) for item, old in zip(described, items, strict=True)
        )
    return described


def _tensor(described: TensorOutline, present: Any, parameter: torch.Tensor | None) -> torch.Tensor:
    """The present one where it fits. One of the parameter's shape lies in memory as the parameter does, which
    a fused step takes for granted: it goes through both in the order of their memory.
    """
    fits = isinstance(present, torch.Tensor) and (tuple(present.shape), present.dtype) == described[:2]
    like = parameter if parameter is not None and tuple(parameter.shape) == described.shape else None
    if fits and (like is None or lies_as(present, like)):
        return present
    device = parameter.device if described.on_parameter and parameter is not None else torch.device("cpu")
    if like is None:
        return torch.empty(described.shape, dtype=described.dtype, device=device)
    made = torch.empty_like(like, dtype=described.dtype, device=device, memory_format=torch.preserve_format)
    return made.copy_(present) if fits else made
