"""Arrays of MXNet in checkpoints: files of ``mx.nd.save`` with a dictionary of arrays."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy

from horovod.mxnet.native import mx


class ParamsFormat:
    """See ``horovod.elastic.checkpoint.formats.Format``. Of ``mx.nd``."""

    suffix = "params"

    def owns(self, value: Any) -> bool:
        return (
            isinstance(value, mx.nd.NDArray)
            and value.stype == "default"
            and not isinstance(value, mx.np.ndarray)
        )

    def copy(self, value: Any) -> Any:
        return value.copy()

    def size(self, value: Any) -> int:
        return int(value.size) * numpy.dtype(value.dtype).itemsize

    def write(self, file: BinaryIO, tensors: Mapping[str, Any]) -> None:
        """By way of memory, because MXNet writes to a path alone."""
        arrays = {name: array.as_in_context(mx.cpu()) for name, array in tensors.items()}
        with open(os.memfd_create("params", os.MFD_CLOEXEC), "rb") as memory:
            mx.nd.save(f"/proc/self/fd/{memory.fileno()}", arrays)
            shutil.copyfileobj(memory, file)

    def read(self, data: bytes) -> dict[str, Any]:
        found = mx.nd.load_frombuffer(data)
        if not isinstance(found, dict):
            raise ValueError("it is no dictionary of arrays")
        return found


class NumpyParamsFormat(ParamsFormat):
    """The same of ``mx.np``, which ``mx.nd.save`` refuses; also without dimensions, whatever the program has
    set by ``mx.npx.set_np()``.
    """

    suffix = "npparams"

    def owns(self, value: Any) -> bool:
        return isinstance(value, mx.np.ndarray)

    def copy(self, value: Any) -> Any:
        with _any_shape():
            return value.copy()

    def write(self, file: BinaryIO, tensors: Mapping[str, Any]) -> None:
        with _any_shape():
            super().write(file, {name: array.as_nd_ndarray() for name, array in tensors.items()})

    def read(self, data: bytes) -> dict[str, Any]:
        with _any_shape():
            return {name: array.as_np_ndarray() for name, array in super().read(data).items()}


def _any_shape() -> contextlib.AbstractContextManager[None]:
    return mx.util.np_shape(True)
