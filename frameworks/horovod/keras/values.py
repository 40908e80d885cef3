"""Collectives on values (numbers, numpy arrays and tensors), by the framework by which Keras computes.

The results are its tensors.
"""

from __future__ import annotations

from typing import Any

from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.keras.backend import adapter


def broadcast_global_variables(root_rank: int) -> None:
    """Gives all global variables of TensorFlow's default graph the values that they have on rank
    ``root_rank``.

    RuntimeError where there are none, as with Keras 3: use ``broadcast_variables`` or the
    BroadcastGlobalVariablesCallback.
    """
    adapter().broadcast_global_variables(root_rank)


def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Gives variables, such as ``model.variables`` and ``model.optimizer.variables``, the values that they
    have on rank ``root_rank``. The order must be equal on all ranks.
    """
    adapter().broadcast_variables(variables, root_rank, process_set)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] | None = NoneCompressor,
) -> Any:
    """The reduction of all ranks' values, as a tensor. ``op``: Average by default; ``average=False`` is the
    deprecated form of Sum. Other arguments as for the framework's ``allreduce``.
    """
    given = None if average else False  # True is what everybody gives, knowingly or not
    return adapter().allreduce(value, name, given, prescale_factor, postscale_factor, op, compression)


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks one after the other, along the first dimension, as a tensor. The sizes of that
    dimension may differ; a number is taken for an array of one.
    """
    return adapter().allgather(value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank ``root_rank``, as a tensor."""
    return adapter().broadcast(value, root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's share of the rows of the reduction, Average or Sum, of all ranks' values, as a tensor."""
    return adapter().reducescatter(value, name, op)


def join() -> int:
    """Says that this rank has no more data, and returns when every rank has said so: the last to do so.

    Until then it takes part in every operation with data that changes nothing.
    """
    return int(adapter().join())


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the process set has called it."""
    adapter().barrier(process_set=process_set)
