"""The operations on arrays (``mxnet.nd`` or ``mxnet.np``). Existing scripts import them, and what every
adapter offers, under this module's name; nothing here depends on MPI.

They are asynchronous operations of MXNet's engine: a call returns at once, the operation starts when its
input has been computed, and whatever reads the result waits for it, as with every other array. Only allgather
and alltoall wait for the other ranks to call them (see ``gathers``). None waits for the content of an array.

``name`` identifies an operation on all ranks. One without a name is given one by counting, so all ranks must
call those of a kind, on a process set, in one order. Operations of one name run in turn. ``priority``: of
operations that are ready at the same time those with the highest go first, in MXNet's engine and in the core.

Errors: ValueError or TypeError at once for what this caller did wrong; an MXNetError, where the result is
first waited for, when the ranks disagree about shape, type, reduction, root or factors, or when a rank is
gone. Allgather and alltoall, which have waited for the other ranks, raise TensorMismatchError at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common import basics as _basics
from horovod.common import exports as _exports
from horovod.common.collectives import check_root
from horovod.common.exports import *
from horovod.common.native import BROADCAST
from horovod.common.process_sets import check_process_set
from horovod.common.reduce_ops import handle_average_backwards_compatibility
from horovod.mxnet.autograd import differentiable
from horovod.mxnet.engine import Options, push
from horovod.mxnet.gathers import allgather, alltoall, grouped_allgather
from horovod.mxnet.meetings import barrier, join, remove_process_set  # noqa: F401  # not the common one
from horovod.mxnet.names import numbered
from horovod.mxnet.reductions import (
    allreduce,
    allreduce_,
    grouped_allreduce,
    grouped_allreduce_,
    overwrite,
    reduced,
)
from horovod.mxnet.scatters import grouped_reducescatter, reducescatter
from horovod.mxnet.tensors import dtype_number, new, on_host, zeros


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns a copy of the array of rank ``root_rank``; all ranks give one of its shape and type.

    ``root_rank`` is a rank of the job, not a position in ``process_set``, but must be one of its members.
    Differentiable: the gradient is the average over all ranks on the root, and zero elsewhere.
    """
    options = _checked(tensor, root_rank, name, priority, process_set)

    def forward(given: Sequence[Any]) -> list[Any]:
        sent = on_host(given[0])
        result = new(sent.shape, sent)
        push(BROADCAST, [sent], [result], options, root_rank)
        return [result.as_in_context(tensor.context)]

    def backward(gradients: list[Any], name: str) -> list[Any]:
        averages = reduced(gradients, options.named(name)._replace(op=Average))
        is_root = _basics.rank() == root_rank
        return averages if is_root else [zeros(each.shape, each) for each in averages]

    return differentiable(forward, [tensor], options.name, backward)[0]


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Overwrites ``tensor`` with that of rank ``root_rank`` and returns it. Not differentiable. See
    ``broadcast``.
    """
    overwrite(BROADCAST, [tensor], _checked(tensor, root_rank, name, priority, process_set), root_rank)
    return tensor


def _checked(
    tensor: Any, root_rank: int, name: str | None, priority: int, process_set: ProcessSet
) -> Options:
    dtype_number(tensor)
    number = check_process_set(process_set)
    check_root(root_rank, process_set)
    return Options(name or numbered("broadcast", number), process_set, priority)


__all__ = [
    *_exports.__all__,
    "handle_average_backwards_compatibility",
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "join",
    "reducescatter",
]
