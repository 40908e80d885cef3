"""The cases of ``operations`` in torch: every form that horovod.torch has."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from framework import Framework
from operations import Running

import horovod.torch as hvd

SPLIT_TYPES = [torch.int32, torch.int64, torch.uint8, torch.int16]
NOT_OF_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
IN_PLACE = ("allreduce", "grouped_allreduce", "broadcast")


def tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The array as a tensor of the named type, with memory of its own."""
    return torch.from_numpy(np.array(array)).to(getattr(torch, dtype))


def array(result: torch.Tensor) -> np.ndarray:
    """A tensor as numpy shows it; the types that it lacks as float32."""
    result = result.detach()
    return (result.float() if result.dtype in NOT_OF_NUMPY else result).numpy()


class TorchRunning(Running):
    """Waits or not, in place or not, as the case says."""

    def tensor(self, array: np.ndarray, dtype: str) -> torch.Tensor:
        return tensor(array, dtype)

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return array(tensor)

    def dtype(self, tensor: torch.Tensor) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    @property
    def in_place(self) -> bool:
        return self.case.in_place and self.case.kind in IN_PLACE

    def call(self, tensors: Any, options: dict[str, Any]) -> Any:
        form = self.case.kind + ("" if self.case.wait else "_async") + ("_" if self.in_place else "")
        if "splits" in options:
            options["splits"] = self._splits(options["splits"])
        return getattr(hvd, form)(tensors, **options)

    def result(self, called: Any) -> Any:
        return called if self.case.wait else hvd.synchronize(called)

    def check_kept(self, results: Sequence[torch.Tensor]) -> None:
        if not self.in_place:
            return super().check_kept(results)
        for mine, one in zip(self.mine, results, strict=True):
            assert one is mine, f"{self} gives another tensor"

    def _splits(self, splits: list[int]) -> torch.Tensor:
        dtype = SPLIT_TYPES[self.case.number % len(SPLIT_TYPES)]
        return torch.tensor(splits, dtype=dtype if max(splits) < 256 else torch.int32)


class Torch(Framework):
    """What the shared tests need."""

    hvd = hvd
    running = TorchRunning
    disagreement = hvd.TensorMismatchError
    gone = hvd.HorovodInternalError
    mistake = (ValueError, TypeError)

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array))

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return array(tensor)

    def concatenated(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(tensors)

    def gradient(
        self, call: Callable[[torch.Tensor], torch.Tensor], weights: np.ndarray, array: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        leaf = self.tensor(array).requires_grad_()
        result = call(leaf)
        (result * self.tensor(weights)).sum().backward()
        return result.detach().numpy(), leaf.grad.numpy()


framework = Torch()
