"""What the operations need to know of MXNet's arrays, none of which waits for their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from horovod.common.collective.tensor_glue import DTYPES
from horovod.mxnet.native import mx

NDArray = mx.nd.NDArray

_HOST_CONTEXTS = {"cpu", "cpu_pinned", "cpu_shared"}
_BFLOAT16 = numpy.dtype([("bfloat16", numpy.uint16)])  # MXNet's way to name it
_SUPPORTED = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool")


_NUMBERS = {numpy.dtype(name): DTYPES[name] for name in _SUPPORTED} | {_BFLOAT16: DTYPES["bfloat16"]}


def dtype_number(tensor: Any) -> int:
    """The number of an array's type. TypeError for what is no array; ValueError for one that cannot take part
    in an operation: of a type that the core does not have, or sparse.
    """
    if not isinstance(tensor, NDArray):
        raise TypeError(f"expected an mxnet NDArray, not {type(tensor).__name__}")
    if tensor.stype != "default":
        raise ValueError(
            f"a sparse array ({tensor.stype}) cannot be sent; convert it by tostype('default') first"
        )
    number = _NUMBERS.get(numpy.dtype(tensor.dtype))
    if number is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return number


def new(shape: Sequence[int], like: Any) -> Any:
    """An array in host memory with the type of ``like``, not filled; zero rows mean zero rows."""
    with mx.util.np_shape(True):
        array = mx.nd.empty(tuple(shape), mx.cpu(), like.dtype)
    return array.as_np_ndarray() if isinstance(like, mx.np.ndarray) else array


def zeros(shape: Sequence[int], like: Any) -> Any:
    """As ``new``, of zeros."""
    array = new(shape, like)
    if 0 not in shape:
        array[:] = 0
    return array


def fill(array: Any, values: Any) -> None:
    """Overwrites an array, also one of ``mx.np`` without dimensions, which takes no slice."""
    if isinstance(array, mx.np.ndarray):
        with mx.util.np_shape(True):
            array[()] = values
    else:
        array[:] = values


def rows(tensor: Any, start: int, count: int) -> Any:
    """``count`` rows from ``start`` on, not copied."""
    return tensor[start : start + count] if count else new((0, *tensor.shape[1:]), tensor)


def on_host(tensor: Any) -> Any:
    """The array, or a copy of it in host memory: MXNet's engine makes it when there is something to copy."""
    return tensor if tensor.context.device_type in _HOST_CONTEXTS else tensor.as_in_context(mx.cpu())


def check_one_device(tensors: Sequence[Any]) -> None:
    """ValueError unless all arrays of a group are on one device."""
    devices = sorted({str(tensor.context) for tensor in tensors})
    if len(devices) > 1:
        raise ValueError(f"The tensors of a group must be on one device, found {', '.join(devices)}.")
