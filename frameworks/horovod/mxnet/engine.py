"""Handing operations to MXNet's engine, which starts each when its inputs have been computed and lets
whatever reads the outputs wait. No thread waits meanwhile.

The engine starts operations in an order of its own, so the core cannot count those that the program has not
named; they are counted here, where the program calls them.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from horovod.common import basics
from horovod.common.collective.handles import check_types
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Sum
from horovod.mxnet.native import Arrays, Operation, Tensor, library, mx
from horovod.mxnet.tensors import dtype_number

_LONGEST_WAIT = 0.2  # seconds until Python's signal handlers run
_SECONDS_AT_THE_END = 30.0
_ALL_SETS = -1

_Int64s = ctypes.POINTER(ctypes.c_int64)

_lock = threading.Lock()
_counts: Counter[tuple[str, int]] = Counter()  # guarded by _lock; by kind and process set
_called: Counter[int] = Counter()  # guarded by _lock; operations by process set


class Options(NamedTuple):
    """What an operation does to its arrays. ``name`` is the same on all ranks. ``urgent``: it does not wait
    for others to travel with.
    """

    name: str
    process_set: ProcessSet = global_process_set
    priority: int = 0
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    urgent: bool = True

    def named(self, name: str) -> Options:
        """The same under another name."""
        return self._replace(name=name)


def push(
    kind: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    options: Options,
    root: int = 0,
    splits: Sequence[int] = (),
    sources: Sequence[int] = (),
) -> None:
    """Hands one operation over arrays in host memory to the engine; those that are input and output too are
    overwritten. ``splits`` and ``sources``: see frameworks/mxnet_ops/push.h.

    ValueError or TypeError for what is wrong on this rank; what the ranks disagree about, and the loss of a
    rank, is an MXNetError where the outputs are first waited for.
    """
    number = check_process_set(options.process_set)
    dtypes = [dtype_number(tensor) for tensor in inputs]
    check_types(options.op, dtypes)
    if not inputs:
        return
    tensors = (Tensor * len(inputs))()
    for tensor, array, dtype in zip(tensors, inputs, dtypes, strict=True):
        shape = array.shape
        tensor.dtype, tensor.dims = dtype, len(shape)
        tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
    operation = Operation(
        kind=kind,
        reduce_op=options.op,
        prescale=options.prescale,
        postscale=options.postscale,
        root=root,
        process_set=number,
        name=options.name.encode(),
        splits=_int64s(splits),
        split_count=len(splits),
        tensor_count=len(inputs),
        tensors=tensors,
        urgent=options.urgent,
        priority=options.priority,
    )
    arrays = Arrays(handles(inputs), handles(outputs), _int64s(_bytes(outputs)), _int64s(sources))
    mx.base.check_call(library.horovod_mxnet_push(operation, arrays, options.priority))
    with _lock:
        _called[number] += 1


def _int64s(numbers: Sequence[int]) -> Any:
    return ctypes.cast((ctypes.c_int64 * len(numbers))(*numbers), _Int64s)


def handles(arrays: Sequence[Any]) -> Any:
    """The handles of arrays as an array of C."""
    return (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays])


def _bytes(arrays: Sequence[Any]) -> list[int]:
    return [array.size * numpy.dtype(array.dtype).itemsize for array in arrays]


def numbered(kind: str, process_set: int = 0) -> str:
    """The next name of this kind on a process set: the same on all ranks that call in one order."""
    with _lock:
        _counts[kind, process_set] += 1
        return f"mxnet.{kind}.{_counts[kind, process_set]}"


def count_from_the_start() -> None:
    """When the ranks have counted differently, or will not go on together."""
    with _lock:
        _counts.clear()
        _called.clear()


def until_submitted() -> None:
    """Returns when the core knows all operations that were called before: those that follow on the core come
    after them.
    """
    last = library.horovod_mxnet_last()
    while library.horovod_mxnet_await_submitted(last, _LONGEST_WAIT):
        pass


def called_on(process_set: int) -> int:
    """How many operations this rank has called on a process set, since the ranks last began to count."""
    with _lock:
        return _called[process_set]


def until_ended(process_set: int) -> None:
    """Returns when all operations on a process set that were called before have ended."""
    last = library.horovod_mxnet_last()
    while library.horovod_mxnet_await_ended(last, process_set, _LONGEST_WAIT):
        pass


def _finish() -> None:
    """What other ranks wait for is done before this one leaves, unless this one leaves in an error."""
    last, waited = library.horovod_mxnet_last(), 0.0
    if getattr(sys, "last_value", None) is not None:
        return
    left = 0
    with contextlib.suppress(KeyboardInterrupt):
        while waited < _SECONDS_AT_THE_END and (
            left := library.horovod_mxnet_await_ended(last, _ALL_SETS, _LONGEST_WAIT)
        ):
            waited += _LONGEST_WAIT
    if left:
        logging.getLogger("horovod").warning(
            "rank %d leaves although %d of its operations are not complete", basics.rank(), left
        )


basics.before_shutdown(_finish)
basics.on_shutdown(count_from_the_start)
