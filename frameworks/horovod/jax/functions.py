"""Giving all ranks the same start: a pytree, or any object, of one rank on all."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from horovod.common import remarks
from horovod.common.collective.byte_objects import objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.broadcasts import agree_on_tensors
from horovod.jax import internals
from horovod.jax.operations import ops
from horovod.jax.tensors import is_supported


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """See ``ObjectCollectives.broadcast_object``; behind the compiled functions that were called before."""
    internals.wait_for_programs()
    return objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """See ``ObjectCollectives.allgather_object``; behind the compiled functions that were called before."""
    internals.wait_for_programs()
    return objects.allgather_object(obj, name, process_set)


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The pytree of rank ``root_rank``, on all ranks of the process set: parameters, the state of an
    optimizer, a training state of flax. The ranks compare what they have before anything is sent. Not for
    functions that JAX traces.

    Args:
        params: a pytree of arrays and numbers, of the same structure on all ranks.
        root_rank: whose.
        process_set: the ranks that take part.

    Returns:
        The tree of the root. Arrays do not change in JAX, so use what is returned.

    Raises:
        ValueError: a leaf cannot be sent, on one rank; on all ranks.
        TensorMismatchError: the ranks' trees differ in structure, shapes or types; on all ranks.
        HorovodInternalError: a rank is gone.
    """
    remarks.parameters_are_broadcast()
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    leaves = [(jax.tree_util.keystr(path) or "the array", leaf) for path, leaf in paths]
    problem = next(filter(None, (_problem_with(*each) for each in leaves)), None)
    kinds = {} if problem else {name: _kind(leaf) for name, leaf in leaves}
    agree_on_tensors("hvd.broadcast_parameters", kinds, process_set, problem)
    handles = [
        ops.broadcast_async(leaf, root_rank, f"broadcast_parameters.{name}", process_set)
        for name, leaf in leaves
    ]
    return jax.tree_util.tree_unflatten(structure, [ops.synchronize(handle) for handle in handles])


def _problem_with(name: str, leaf: Any) -> str | None:
    if isinstance(leaf, jax.core.Tracer) or internals.is_tracing():
        return f"{name} is traced: call hvd.broadcast_parameters outside of jit and grad"
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float, bool)):
        return f"{name} is a {type(leaf).__name__}, not an array; use hvd.broadcast_object for it"
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and not is_supported(dtype):
        return f"{name} is of type {dtype}, which operations do not have; use hvd.broadcast_object for it"
    return None


def _kind(leaf: Any) -> str:
    shaped = jax.eval_shape(lambda: jax.numpy.asarray(leaf))
    return f"{shaped.dtype} {list(shaped.shape)}"
