"""Makes MXNet importable, and binds the compiled part of this adapter to it and to the core."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy
from packaging.version import Version

from horovod.common.collective.operations import acquire_api

_FILE = Path(__file__).with_name("_ops.so")


def _import_mxnet() -> Any:
    """MXNet 1.9.1, the last release, asks numpy for a name that numpy 1.24 has dropped, and breaks on numpy
    2.
    """
    version = Version(numpy.__version__)
    if version >= Version("2.0.0.dev0"):
        raise ImportError(
            f"MXNet cannot be imported beside numpy {numpy.__version__}, it needs numpy 1: "
            "pip install 'numpy<2' (TensorFlow 2.21 and torch 2.13 work with numpy 1.26.4 too)"
        )
    if version >= Version("1.24"):
        vars(numpy)["bool"] = numpy.bool_
    import mxnet

    return mxnet


mx = _import_mxnet()


class Tensor(ctypes.Structure):
    """hvd_tensor of core/api/c_api.h."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("input_bytes", ctypes.c_int64),
        ("output", ctypes.c_void_p),
        ("output_bytes", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class Operation(ctypes.Structure):
    """hvd_operation of core/api/c_api.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("root", ctypes.c_int32),
        ("process_set", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("split_count", ctypes.c_int32),
        ("tensor_count", ctypes.c_int32),
        ("tensors", ctypes.POINTER(Tensor)),
        ("urgent", ctypes.c_int32),
        ("awaited", ctypes.c_int32),
        ("priority", ctypes.c_int32),
    )


class Arrays(ctypes.Structure):
    """horovod_mxnet_arrays of frameworks/mxnet_ops/push.h."""

    _fields_ = (
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("output_bytes", ctypes.POINTER(ctypes.c_int64)),
        ("sources", ctypes.POINTER(ctypes.c_int64)),
    )


# The members of horovod_mxnet_functions of frameworks/mxnet_ops/mxnet_c_api.h, as MXNet calls them.
_FUNCTIONS = (
    "MXNDArrayGetData",
    "MXShallowCopyNDArray",
    "MXNDArrayFree",
    "MXEnginePushAsyncND",
    "_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv",  # NDArray::Reorder2DefaultAsync() const
)
_OPTIONAL = _FUNCTIONS[-1]  # only where MXNet is built with oneDNN


def _functions() -> Any:
    addresses = []
    for name in _FUNCTIONS:
        function = getattr(mx.base._LIB, name, None)
        if function is None and name != _OPTIONAL:
            raise ImportError(f"MXNet {mx.__version__} has no {name}; horovod.mxnet works with MXNet 1.9.1")
        addresses.append(ctypes.cast(function, ctypes.c_void_p) if function else None)
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _load() -> ctypes.CDLL:
    if not _FILE.exists():
        raise ImportError(
            f"{_FILE} is missing: this horovod was built without the MXNet operations; install it again"
        )
    library = ctypes.CDLL(str(_FILE))
    try:
        _declare(library)
        mismatch = library.horovod_mxnet_bind(
            acquire_api(), _functions(), ctypes.sizeof(Operation) + ctypes.sizeof(Tensor)
        )
    except AttributeError as missing:
        mismatch = missing
    if mismatch:
        raise ImportError(f"{_FILE} and this horovod are of different builds; install horovod again")
    return library


def _declare(library: ctypes.CDLL) -> None:
    library.horovod_mxnet_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.horovod_mxnet_bind.restype = ctypes.c_int
    library.horovod_mxnet_push.argtypes = [ctypes.POINTER(Operation), ctypes.POINTER(Arrays), ctypes.c_int]
    library.horovod_mxnet_push.restype = ctypes.c_int
    library.horovod_mxnet_await_readers.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
    library.horovod_mxnet_await_readers.restype = ctypes.c_int
    library.horovod_mxnet_last.argtypes = []
    library.horovod_mxnet_last.restype = ctypes.c_uint64
    library.horovod_mxnet_await_submitted.argtypes = [ctypes.c_uint64, ctypes.c_double]
    library.horovod_mxnet_await_submitted.restype = ctypes.c_uint64
    library.horovod_mxnet_await_ended.argtypes = [ctypes.c_uint64, ctypes.c_int64, ctypes.c_double]
    library.horovod_mxnet_await_ended.restype = ctypes.c_uint64


library = _load()
"""The compiled functions; see frameworks/mxnet_ops/push.h."""
