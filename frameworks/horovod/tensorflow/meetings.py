"""Where ranks meet without exchanging tensors, and the operations that say who they are when a graph runs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.tensorflow.native import library
from horovod.tensorflow.nodes import node_names


def _after_all_collectives() -> Any:
    """In a graph the operations run in any order; a meeting comes after those that stand before it."""
    if tf.executing_eagerly():
        return tf.control_dependencies(None)
    graph = tf.compat.v1.get_default_graph()
    return tf.control_dependencies([op for op in graph.get_operations() if op.type.startswith("Horovod")])


def join() -> tf.Tensor:
    """Says that this rank has no more data, and returns when every rank has said so: the last to do so.

    Until then it takes part in every operation with data that changes nothing (zeros in a sum, no rows in an
    allgather).
    """
    with _after_all_collectives():
        return library.horovod_join()


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Returns when every rank of the process set has called it."""
    with _after_all_collectives():
        node = node_names("HorovodBarrier", None, False)
        return library.horovod_barrier(process_set_id=check_process_set(process_set), **node)


def rank_op(name: str | None = None) -> tf.Tensor:
    """This process's rank when the graph runs."""
    return library.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This process's rank on its host when the graph runs."""
    return library.horovod_local_rank(name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """How many processes this host has when the graph runs."""
    return library.horovod_local_size(name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """How many ranks a process set has when the graph runs."""
    return library.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 when this process belongs to a process set, else 0, when the graph runs."""
    return library.horovod_process_set_included(process_set_id=process_set_id, name=name)
