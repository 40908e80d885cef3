"""What ``horovod.keras`` needs where Keras computes by torch."""

from __future__ import annotations

from typing import Any

import keras

import horovod.torch as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.plan import Plan
from horovod._keras.versions import keras_of
from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.keras.torch_backend import backend
from horovod.torch import barrier, join, metric
from horovod.torch.compression import Compression

__all__ = ["backend", "barrier", "Compression", "join", "metric"]


def _tensor(value: Any) -> Any:
    """A variable stands for its value, of which the result is no function."""
    tensor = keras.ops.convert_to_tensor(value)
    return tensor.detach() if isinstance(value, keras.Variable) else tensor


def distribute(optimizer: Any, plan: Plan) -> Any:
    """A distributed copy of ``optimizer``. ValueError when it is of a Keras that does not compute by
    torch.
    """
    if keras_of(optimizer) is not keras:
        raise ValueError(
            "This is an optimizer of tf_keras, which computes by TensorFlow, and keras by torch."
        )
    return keras3_optimizer.distribute(optimizer, plan, keras)


def broadcast_global_variables(root_rank: int) -> None:
    """RuntimeError: torch has no global variables."""
    raise RuntimeError(
        "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use hvd.broadcast_variables(), or "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0) instead."
    )


def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """See ``horovod.keras``."""
    backend.broadcast_variables(list(variables), root_rank, process_set)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] | None = NoneCompressor,
) -> Any:
    """See ``horovod.keras``."""
    tensor = _tensor(value)
    return hvd.allreduce(tensor, average, name, compression, op, prescale_factor, postscale_factor)


def allgather(value: Any, name: str | None = None) -> Any:
    """See ``horovod.keras``."""
    tensor = _tensor(value)
    return hvd.allgather(tensor.reshape(1) if tensor.dim() == 0 else tensor, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """See ``horovod.keras``."""
    return hvd.broadcast(_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """See ``horovod.keras``."""
    return hvd.reducescatter(_tensor(value), name, op=op)
