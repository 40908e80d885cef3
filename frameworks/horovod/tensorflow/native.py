"""The compiled operations: loading them, and telling TensorFlow how it may order them."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from packaging.version import Version

from horovod.common.collective.operations import acquire_api

OLDEST = "2.13"
_FILE = Path(__file__).with_name("_ops.so")
_COLLECTIVES = (
    "Allreduce",
    "GroupedAllreduce",
    "Allgather",
    "GroupedAllgather",
    "Broadcast",
    "Alltoall",
    "Reducescatter",
    "GroupedReducescatter",
)
_QUESTIONS = ("Rank", "LocalRank", "LocalSize", "Size", "ProcessSetIncluded")


def _load() -> tuple[Any, Callable[[bytes, int], int], Callable[[int], None]]:
    if Version(tf.__version__) < Version(OLDEST):
        raise ImportError(
            f"horovod.tensorflow needs TensorFlow {OLDEST} or later, this is {tf.__version__}: earlier ones "
            "have no asynchronous operations for libraries"
        )
    if not _FILE.exists():
        raise ImportError(
            f"{_FILE} is missing: this horovod was built without the TensorFlow operations "
            "(HVD_BUILD_TENSORFLOW=OFF); build it with them"
        )
    library = tf.load_op_library(str(_FILE))
    functions = ctypes.CDLL(str(_FILE))
    bind = functions.horovod_tensorflow_bind
    bind.argtypes, bind.restype = [ctypes.c_void_p], ctypes.c_int
    needed = bind(acquire_api())
    if needed != 0:
        raise ImportError(f"{_FILE} and horovod._core are of different builds; install horovod again")
    put_name = functions.horovod_tensorflow_put_name
    put_name.argtypes, put_name.restype = [ctypes.c_char_p, ctypes.c_int64], ctypes.c_int64
    take_back_name = functions.horovod_tensorflow_take_back_name
    take_back_name.argtypes, take_back_name.restype = [ctypes.c_int64], None
    return library, put_name, take_back_name


def _let_run_in_any_order() -> None:
    """An op with effects outside the graph is stateful, so that TensorFlow neither merges equal ones nor
    computes those of constants in advance; but stateful ops of one tf.function run one after the other.
    Collectives need not: their names match them across ranks, and they must overlap. Without the exemption
    everything is right and slow.
    """
    from tensorflow.python.framework import auto_control_deps

    exemptions = {
        "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS": _COLLECTIVES,
        "ASYNC_STATEFUL_OPS": _QUESTIONS,  # nobody misses an answer that nobody reads
    }
    for attribute, names in exemptions.items():
        known = getattr(auto_control_deps, attribute, None)
        if known is None:
            warnings.warn(
                f"TensorFlow {tf.__version__} has no {attribute}: collectives in one tf.function will run "
                "one after the other",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        ours = {"Horovod" + name for name in names}
        setattr(auto_control_deps, attribute, frozenset(known) | ours)


_library, _put_name, _take_back_name = _load()


def put_name(name: str) -> dict[str, Any]:
    """What stands for the name of an eager operation in its attributes, once: TensorFlow keeps whatever it
    has met in an attribute for ever. ``use`` is for ``library``.
    """
    encoded = name.encode()
    use = _put_name(encoded, len(encoded))
    if use < 0:
        raise MemoryError(f"There is no memory for the name {name!r}.")
    return {"tensor_name": f"*{use & 0xFFFFFFFF}", "use": use}


def _op(op: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """``compiled``: the name of an operation that XLA compiles; ``use``: see ``put_name``, and given back."""

    def run_op(*inputs: Any, use: int | None = None, compiled: str | None = None, **attributes: Any) -> Any:
        if compiled is not None:
            from horovod.tensorflow.compiled import run as run_compiled  # late: most programs never do

            return run_compiled(op, inputs, compiled, attributes)
        try:
            return run(*inputs, **attributes)
        except BaseException:  # perhaps before a kernel has taken the name
            if use is not None:
                _take_back_name(use)
            raise

    return run_op


library = SimpleNamespace(
    **{
        name: _op(name, each) if callable(each) else each
        for name, each in vars(_library).items()
        if name.startswith("horovod_")
    }
)
"""The ops as Python functions: library.horovod_allreduce and so on."""


_let_run_in_any_order()
