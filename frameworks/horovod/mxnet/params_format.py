"""Arrays of MXNet in checkpoints: files of ``mx.nd.save`` with a dictionary of arrays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy

from horovod.mxnet.native import mx


class ParamsFormat:
    """See ``horovod.elastic.checkpoint.formats.Format``."""

    suffix = "params"

    def owns(self, value: Any) -> bool:
        return isinstance(value, mx.nd.NDArray) and value.stype == "default"

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
