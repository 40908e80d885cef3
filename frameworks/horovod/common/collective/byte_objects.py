"""Objects between ranks, and means of what is no tensor, for adapters whose tensors are no good for it: over
plain bytes of Python.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from horovod.common import basics
from horovod.common.collective.collectives import Collectives
from horovod.common.collective.objects import ObjectCollectives
from horovod.common.collective.tensor_glue import (
    DTYPES,
    Output,
    Placement,
    Purpose,
    Result,
    Spec,
    TensorGlue,
)
from horovod.common.process_sets import ProcessSet, global_process_set


def _address(data: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0


class ByteGlue(TensorGlue[bytearray]):
    """A bytearray as a one-dimensional tensor: of bytes, or what ``dtype`` and its ``width`` say."""

    dtype = DTYPES["uint8"]
    width = 1

    def describe(self, tensor: bytearray) -> Spec | None:
        address = _address(tensor)
        size = len(tensor)
        return (address, address, self.dtype, (size // self.width,), size, size) if tensor else None

    def place(self, tensor: bytearray, result: Result, purpose: Purpose) -> Placement[bytearray]:
        address = _address(tensor)

        def finish(output: Output | None) -> bytearray:
            return tensor if output is None else bytearray(output.tobytes())

        size = len(tensor)
        to, room = (address, size) if result is Result.IN_PLACE else (0, 0)
        spec = (address, to, self.dtype, (size // self.width,), size, room)
        return Placement(spec, tensor, finish)

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


def mean_of_plain(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of ``value`` over all ranks. Waits for them.

    Args:
        value: a number, an array of numpy or what numpy makes one of. Integers have a mean in floating point.
        name: identifies the operation on all ranks.
        process_set: the ranks that take part.

    Returns:
        A float for a number, else an array.

    Raises:
        ValueError: the shapes differ; on every rank.
    """
    import numbers  # late: nothing else here needs them

    import numpy

    array = numpy.asarray(value)
    gathered = objects.allgather_object(array, name, process_set)
    shapes = [each.shape for each in gathered]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"get_global_mean: the ranks gave arrays of different shapes, in rank order {shapes}"
        )
    mean = numpy.mean(gathered, axis=0, dtype=numpy.result_type(array.dtype, numpy.float32))
    mean = mean.astype(array.dtype) if numpy.issubdtype(array.dtype, numpy.floating) else mean
    return float(mean) if isinstance(value, numbers.Real) else mean


basics.on_shutdown(operations.reset)
os.register_at_fork(after_in_child=operations.reset_in_child)
