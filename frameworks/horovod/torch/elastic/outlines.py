"""An optimizer's outline and its tensors as one value of dictionaries, lists and tensors, for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.torch.optimizer_state import OptimizerOutline, TensorOutline, mapped

_PARTS = ("groups", "states", "others")  # that have tensors


def written(outline: OptimizerOutline, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The outline with a tensor in each place that it has for one.

    Args:
        outline: of an optimizer.
        tensors: in its order.
    """
    left = iter(tensors)
    on_parameter: list[bool] = []

    def fill(described: TensorOutline) -> torch.Tensor:
        on_parameter.append(described.on_parameter)
        return next(left)

    parts = {name: mapped(getattr(outline, name), TensorOutline, fill) for name in _PARTS}
    return {
        **parts,
        "on_parameter": on_parameter,
        "names": outline.names,
        "shapes": outline.shapes,
    }


def read(told: dict[str, Any]) -> tuple[OptimizerOutline, list[torch.Tensor]]:
    """What ``written`` was given."""
    left = iter(told["on_parameter"])
    tensors: list[torch.Tensor] = []

    def empty(tensor: torch.Tensor) -> TensorOutline:
        tensors.append(tensor)
        return TensorOutline(tuple(tensor.shape), tensor.dtype, next(left))

    parts = [mapped(told[name], torch.Tensor, empty) for name in _PARTS]
    # Checkpoints of earlier versions have no names.
    return OptimizerOutline(*parts)._replace(names=told.get("names"), shapes=told.get("shapes")), tensors
