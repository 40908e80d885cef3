"""An optimizer's outline and its tensors as one value of dictionaries, lists and tensors, for checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from horovod.torch.optimizer_state import OptimizerOutline, TensorOutline


def written(outline: OptimizerOutline, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The outline with a tensor in each place that it has for one.

    Args:
        outline: of an optimizer.
        tensors: in its order.
    """
    left = iter(tensors)
    on_parameter: list[bool] = []
    parts = [_filled(part, left, on_parameter) for part in (outline.groups, outline.states, outline.others)]
    groups, states, others = parts
    return {
        "groups": groups,
        "states": states,
        "others": others,
        "on_parameter": on_parameter,
        "names": outline.names,
        "shapes": outline.shapes,
    }


def read(told: dict[str, Any]) -> tuple[OptimizerOutline, list[torch.Tensor]]:
    """What ``written`` was given."""
    left = iter(told["on_parameter"])
    tensors: list[torch.Tensor] = []
    parts = [_emptied(told[name], left, tensors) for name in ("groups", "states", "others")]
    # Checkpoints of earlier versions have no names.
    return OptimizerOutline(*parts)._replace(names=told.get("names"), shapes=told.get("shapes")), tensors


def _filled(value: Any, tensors: Iterator[torch.Tensor], on_parameter: list[bool]) -> Any:
    if isinstance(value, TensorOutline):
        on_parameter.append(value.on_parameter)
        return next(tensors)
    if type(value) is dict:
        return {key: _filled(item, tensors, on_parameter) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_filled(item, tensors, on_parameter) for item in value)
    return value


def _emptied(value: Any, on_parameter: Iterator[bool], tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return TensorOutline(tuple(value.shape), value.dtype, next(on_parameter))
    if type(value) is dict:
        return {key: _emptied(item, on_parameter, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_emptied(item, on_parameter, tensors) for item in value)
    return value
