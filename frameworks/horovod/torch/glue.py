"""torch behind the verbs of TensorGlue, but for the recording of gradients (``operations``)."""

from __future__ import annotations

import torch

from horovod.common.tensor_glue import TensorGlue
from horovod.torch import tensors


class TorchGlue(TensorGlue[torch.Tensor]):
    """Describes, places and makes torch tensors."""

    describe = staticmethod(tensors.describe)
    place = staticmethod(tensors.place)
    from_bytes = staticmethod(tensors.from_bytes)
    to_bytes = staticmethod(tensors.to_bytes)

    def empty_like(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        output = torch.empty(tensor.shape, dtype=tensor.dtype)
        return output, output.data_ptr()

    def device(self, tensor: torch.Tensor) -> object:
        return tensor.device

    def dimensions(self, tensor: torch.Tensor) -> int:
        return tensor.dim()

    def rows(self, tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
        return tensor.narrow(0, start, count)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(tensor)

    def records_gradient(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()
