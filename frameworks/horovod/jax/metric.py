"""Metrics of the whole job."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from horovod.common.collective.byte_objects import mean_of_plain
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import internals
from horovod.jax.tensors import as_array
from horovod.jax.trees import allreduce


def get_global_mean(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The mean of a value over all ranks.

    Args:
        value: a number, an array of numpy or of JAX, of one shape on all ranks. Integers have a mean in
            floating point.
        name: identifies the operation on all ranks.
        process_set: the ranks that take part.

    Returns:
        A float for a number, an array of the same kind for an array.

    Raises:
        ValueError, TensorMismatchError: the shapes or types differ; on all ranks.
        HorovodInternalError: a rank is gone.
    """
    if not isinstance(value, jax.Array) and not internals.is_tracing():
        internals.wait_for_programs()
        return mean_of_plain(value, name, process_set)
    array = as_array(value)
    wide = array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)
    return allreduce(jax.lax.stop_gradient(wide), name=name, process_set=process_set)
