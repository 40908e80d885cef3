"""Objects between ranks for adapters whose tensors are no good for it: over plain bytes of Python."""

from __future__ import annotations

import ctypes
import os

from horovod.common import basics
from horovod.common.collectives import Collectives
from horovod.common.objects import ObjectCollectives
from horovod.common.placement import DTYPES, Output, Placement, Spec
from horovod.common.tensor_glue import Result, TensorGlue


def _address(data: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0


class ByteGlue(TensorGlue[bytearray]):
    """A bytearray as a one-dimensional tensor of bytes."""

    def describe(self, tensor: bytearray) -> Spec | None:
        address = _address(tensor)
        size = len(tensor)
        return (address, address, DTYPES["uint8"], (size,), size, size) if tensor else None

    def place(self, tensor: bytearray, result: Result) -> Placement[bytearray]:
        address = _address(tensor)

        def finish(output: Output | None) -> bytearray:
            return tensor if output is None else bytearray(output.tobytes())

        size = len(tensor)
        to, room = (address, size) if result is Result.IN_PLACE else (0, 0)
        return Placement((address, to, DTYPES["uint8"], (size,), size, room), tensor, finish)

    def device(self, tensor: bytearray) -> object:
        return "cpu"

    def from_bytes(self, data: bytes) -> bytearray:
        return bytearray(data)

    def to_bytes(self, tensor: bytearray) -> bytes:
        return bytes(tensor)

    def records_gradient(self, tensor: bytearray) -> bool:
        return False


operations = Collectives(ByteGlue())
objects = ObjectCollectives(operations)

basics.on_shutdown(operations.reset)
os.register_at_fork(after_in_child=operations.reset_in_child)
