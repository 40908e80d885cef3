"""Variables and objects of one rank, given to all ranks, and objects of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import remarks
from horovod.common.collective import byte_objects
from horovod.common.collective.tensor_glue import DTYPES
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.agreement import at_construction
from horovod.common.training.broadcasts import agree_on_tensors
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.graph import as_written, tf_variable
from horovod.tensorflow.reductions import on_device
from horovod.tensorflow.util import _cache, _executing_eagerly, _make_subgraph  # noqa: F401  # as from mpi_ops

_NAME = "broadcast_variables"
_TYPES = frozenset(name for name in DTYPES if not name.startswith("float8"))


@as_written
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives variables the values that they have on one rank.

    Args:
        variables: Of TensorFlow or Keras, in an order that is equal on all ranks; their names need not be.
        root_rank: That rank.
        process_set: The ranks that take part.
        inplace: Accepted and not needed: a value is assigned as it comes.

    Returns:
        In a graph of TensorFlow 1 the operation that does it, otherwise None.

    Raises:
        TensorMismatchError: On every rank, before anything is sent, when the ranks have other variables: one
            whose model is not built yet has none. Not in a ``tf.function``, which a rank may trace alone.
        ValueError: On every rank, likewise, when one has a variable of a type that cannot be sent.
    """
    remarks.parameters_are_broadcast()
    targets = [tf_variable(variable) for variable in variables]
    if not tf.inside_function() and (tf.executing_eagerly() or at_construction()):
        _agree(targets, process_set)
    if not targets:
        return _done([])
    if inplace or tf.executing_eagerly():
        return _done(mpi_ops.broadcast_(targets, root_rank, _NAME, process_set))
    assigned = []
    for index, variable in enumerate(targets):
        name = f"{_NAME}.{index}"
        value = mpi_ops.broadcast(variable, root_rank, name=name, process_set=process_set)
        assigned.append(variable.assign(value))
    return _done(assigned)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives all ranks an object of one. Runs at once, also where a graph is built.

    Args:
        obj: Ignored on all other ranks.
        root_rank: The rank whose object it is.
        session: Accepted and not needed.
        name: Of the operations, equal on all ranks.
        process_set: The ranks that take part.

    Returns:
        The object of ``root_rank``: itself there, a copy elsewhere.

    Raises:
        ValueError: On every rank, when the root cannot pickle the object.
    """
    return byte_objects.objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Makes ``broadcast_object`` a function of the object alone.

    Args:
        root_rank, session, name, process_set: As for ``broadcast_object``.

    Returns:
        The function.
    """

    def broadcast(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives all ranks the objects of all. Runs at once, also where a graph is built.

    Args:
        obj: This rank's.
        session: Accepted and not needed.
        name: Of the operations, equal on all ranks.
        process_set: The ranks that take part.

    Returns:
        The objects, in rank order.

    Raises:
        ValueError: On every rank, when one of them cannot pickle its object.
    """
    return byte_objects.objects.allgather_object(obj, name, process_set)


def broadcast_global_variables(root_rank: int, process_set: ProcessSet = global_process_set) -> Any:
    """Gives all global variables of the graph the values that they have on one rank.

    Args:
        root_rank: That rank.
        process_set: The ranks that take part.

    Returns:
        The operation that does it.

    Raises:
        RuntimeError: Where TensorFlow executes eagerly, which knows no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. "
            "Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank, process_set)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the variables of one when a session has been created, initialised at random or restored
    from a checkpoint.

    Args:
        root_rank: That rank.
        device: Where the operations are placed.
        process_set: The ranks that take part.
    """

    def __init__(
        self, root_rank: int, device: str = "", process_set: ProcessSet = global_process_set
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.process_set = process_set
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operations to the graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with on_device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank, self.process_set)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs them."""
        session.run(self.bcast_op)


def _agree(variables: Sequence[Any], process_set: ProcessSet) -> None:
    types = [tf.as_dtype(each.dtype).base_dtype.name for each in variables]
    wrong = [(each.name, name) for each, name in zip(variables, types, strict=True) if name not in _TYPES]
    problem = None
    if wrong:
        problem = f"{wrong[0][0]!r} cannot be broadcast, and nothing was: its type is {wrong[0][1]}"
    both = enumerate(zip(variables, types, strict=True))
    kinds = {str(place): f"{name} {each.shape}" for place, (each, name) in both}
    shown = {str(place): f"number {place}, {each.name!r}" for place, each in enumerate(variables)}
    agree_on_tensors("hvd.broadcast_variables", kinds, process_set, problem, shown)


def _done(assigned: Sequence[Any]) -> Any:
    """In a graph of TensorFlow 1 the operation that has run when all of ``assigned`` have. A ``tf.function``
    runs what assigns variables without being asked to.
    """
    return None if tf.executing_eagerly() or tf.inside_function() else tf.group(*assigned)
