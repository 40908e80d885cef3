"""Operations that say who this process is when a graph runs: not yet known while the graph is made, where
ranks may come and go.
"""

from __future__ import annotations

import tensorflow as tf

from horovod.tensorflow.native import library


def rank_op(name: str | None = None) -> tf.Tensor:
    """Asks for this process's rank.

    Args:
        name: Of the operation.

    Returns:
        A scalar of int32.
    """
    return library.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Asks for this process's rank on its host.

    Args:
        name: Of the operation.

    Returns:
        A scalar of int32.
    """
    return library.horovod_local_rank(name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Asks how many processes this host has.

    Args:
        name: Of the operation.

    Returns:
        A scalar of int32.
    """
    return library.horovod_local_size(name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Asks how many ranks a process set has.

    Args:
        process_set_id: Of the set; 0 is the global one.
        name: Of the operation.

    Returns:
        A scalar of int32.
    """
    return library.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Asks whether this process belongs to a process set.

    Args:
        process_set_id: Of the set; 0 is the global one.
        name: Of the operation.

    Returns:
        A scalar of int32: 1 when it does, else 0.
    """
    return library.horovod_process_set_included(process_set_id=process_set_id, name=name)
