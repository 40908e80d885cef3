"""Binds the compiled handler of XLA's foreign function interface to the core; see frameworks/xla_ops."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from horovod.common.collective.operations import acquire_api

_FILE = Path(__file__).with_name("_ops.so")

TARGET, START, TAKE = "horovod_collective", "horovod_start", "horovod_take"
"""The names by which compiled programs call the handlers: of a collective, of the start of an allreduce that
travels while the program goes on, and of the end of all that it has started.
"""
HANDLERS = (
    (TARGET, "cpu", "horovod_collective"),
    (TARGET, "CUDA", "horovod_collective_on_gpu"),
    (START, "cpu", "horovod_start"),
    (TAKE, "cpu", "horovod_take"),
)
"""For each name and platform, as JAX calls it, the function of the library."""


def _load() -> ctypes.CDLL:
    if not _FILE.exists():
        raise ImportError(
            f"{_FILE} is missing: this horovod was built without the operations of XLA; install it again"
        )
    library = ctypes.CDLL(str(_FILE))
    library.horovod_xla_bind.argtypes = [ctypes.c_void_p]
    library.horovod_xla_bind.restype = ctypes.c_int
    library.horovod_xla_register.argtypes = [ctypes.c_void_p]
    library.horovod_xla_register.restype = ctypes.c_int
    if library.horovod_xla_bind(acquire_api()):
        raise ImportError(f"{_FILE} and this horovod are of different builds; install horovod again")
    return library


def register(get_api: Any) -> bool:
    """Makes the handlers known to an XLA that Python cannot tell of it.

    Args:
        get_api: the function that gives the table of its foreign function interface, as ctypes has it.

    Returns:
        Whether it is known now.
    """
    return _library.horovod_xla_register(ctypes.cast(get_api, ctypes.c_void_p)) == 0


def handler(function: str) -> Any:
    """The function of the library by that name, as ctypes has it."""
    return getattr(_library, function)


_library = _load()
