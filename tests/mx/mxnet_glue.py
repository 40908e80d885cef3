"""The cases of ``operations`` in MXNet: every form that horovod.mxnet has."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from check_mxnet import mx
from framework import Framework
from operations import Running

import horovod.mxnet as hvd

DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool"]
IN_PLACE = ("allreduce", "grouped_allreduce", "broadcast")
RAGGED = ("allgather", "grouped_allgather", "alltoall")  # the ranks call them in one order


def tensor(array: np.ndarray, dtype: str) -> Any:
    """The array as one of the named type, also without rows."""
    with mx.util.np_shape(True):
        result = mx.nd.empty(array.shape, dtype=dtype)
        if array.size:
            result[:] = mx.nd.array(array, dtype=dtype)
    return result


class MXNetRunning(Running):
    """In place or not, as the case says; some with arrays of ``mx.np``. All are asynchronous, the forms are
    called in an order of each rank unless they meet.
    """

    def __init__(self, case: Any) -> None:
        super().__init__(case)
        case.wait = case.wait or case.kind in RAGGED

    def tensor(self, array: np.ndarray, dtype: str) -> Any:
        made = tensor(array, dtype)
        return made.as_np_ndarray() if self.case.number % 5 == 0 else made

    def array(self, tensor: Any) -> np.ndarray:
        tensor.wait_to_read()  # MXNet does not wait for an array without elements otherwise
        return tensor.asnumpy()

    def dtype(self, tensor: Any) -> str:
        assert isinstance(tensor, mx.np.ndarray) == (self.case.number % 5 == 0), f"{self} changes the class"
        return np.dtype(tensor.dtype).name

    @property
    def in_place(self) -> bool:
        return self.case.in_place and self.case.kind in IN_PLACE

    def call(self, tensors: Any, options: dict[str, Any]) -> Any:
        if "splits" in options and self.case.number % 3:
            dtype = "int32" if self.case.number % 3 == 1 else "int64"
            options["splits"] = mx.nd.array(options["splits"], dtype=dtype)
        options["priority"] = self.case.number % 7 - 3
        return getattr(hvd, self.case.kind + ("_" if self.in_place else ""))(tensors, **options)

    def check_kept(self, results: Sequence[Any]) -> None:
        if not self.in_place:
            return super().check_kept(results)
        for mine, one in zip(self.mine, results, strict=True):
            assert one is mine, f"{self} gives another array"


class MXNet(Framework):
    """What the shared tests need."""

    hvd = hvd
    running = MXNetRunning
    dtypes = DTYPES
    disagreement = (mx.base.MXNetError, hvd.TensorMismatchError)
    gone = mx.base.MXNetError
    mistake = (ValueError, TypeError)

    def tensor(self, array: np.ndarray) -> Any:
        return tensor(array, array.dtype.name)

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.asnumpy()

    def concatenated(self, tensors: list[Any]) -> Any:
        return mx.nd.concat(*tensors, dim=0)

    def gradient(
        self, call: Callable[[Any], Any], weights: np.ndarray, array: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        given = self.tensor(array)
        with mx.util.np_shape(True):  # there may be no rows
            given.attach_grad()
            with mx.autograd.record():
                result = call(given)
                loss = (result * self.tensor(weights)).sum()
            loss.backward()
        return result.asnumpy(), given.grad.asnumpy()


framework = MXNet()
