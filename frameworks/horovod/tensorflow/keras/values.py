"""Collectives on values: numbers, numpy arrays and tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.tensorflow import functions, mpi_ops, reductions
from horovod.tensorflow.keras.backend import backend


def broadcast_global_variables(root_rank: int) -> None:
    """Gives all global variables of the default graph the values that they have on rank ``root_rank``.

    RuntimeError where TensorFlow executes eagerly, which knows no global variables: use
    ``broadcast_variables`` or the BroadcastGlobalVariablesCallback.
    """
    _run(functions.broadcast_global_variables(root_rank))


def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Gives variables, such as ``model.variables`` and ``model.optimizer.variables``, the values that they
    have on rank ``root_rank``. The order must be equal on all ranks.
    """
    given = list(variables() if callable(variables) else variables)
    backend.broadcast_variables(given, root_rank, process_set)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] | None = NoneCompressor,
) -> Any:
    """The reduction of all ranks' values, as a tensor. ``op``: Average by default; ``average`` is its
    deprecated form. Other arguments as for ``horovod.tensorflow.allreduce``.
    """
    return _run(
        reductions.allreduce(
            tf.convert_to_tensor(value),
            average=average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks one after the other, along the first dimension, as a tensor. The sizes of that
    dimension may differ; a number is taken for an array of one.
    """
    tensor = tf.convert_to_tensor(value)
    return _run(mpi_ops.allgather(tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tensor, name=name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank ``root_rank``, as a tensor."""
    return _run(mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's share of the rows of the reduction, Average or Sum, of all ranks' values, as a tensor."""
    return _run(reductions.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def _run(result: Any) -> Any:
    """In a program of TensorFlow 1, what the operation gives when Keras' session runs it."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return result
    return tf.compat.v1.keras.backend.get_session().run(result)
