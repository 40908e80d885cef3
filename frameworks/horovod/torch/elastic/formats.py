"""Tensors of torch in checkpoints: files of ``torch.save`` with a dictionary of plain tensors."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch


class TensorFormat:
    """See ``horovod.elastic.checkpoint.formats.Format``."""

    suffix = "pt"

    def owns(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def copy(self, value: Any) -> Any:
        return value.detach().clone()

    def size(self, value: Any) -> int:
        return int(value.nbytes)

    def write(self, file: BinaryIO, tensors: Mapping[str, Any]) -> None:
        with torch.no_grad():
            torch.save({name: tensor.detach().cpu() for name, tensor in tensors.items()}, file)

    def read(self, data: bytes) -> dict[str, Any]:
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
            raise ValueError("it is no dictionary of tensors")
        return found
