"""The public operations: what ``operations`` does with one array, over a pytree of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from horovod.jax.operations import ops

Several = Callable[..., list[jax.Array]]


def over_trees(single: Callable[..., Any], several: Several) -> Callable[..., Any]:
    """An operation on an array, or on a pytree of arrays as on each of them, all or none.

    Args:
        single: the operation on one array.
        several: that on a list of arrays.

    Returns:
        The operation on a tree, which returns one of the same structure.
    """

    @functools.wraps(single)
    def operation(tensor: Any, *arguments: Any, **options: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(tensor)
        if leaves and jax.tree_util.treedef_is_leaf(structure):
            return single(leaves[0], *arguments, **options)
        return jax.tree_util.tree_unflatten(structure, several(leaves, *arguments, **options))

    return operation


def each_of(single: Callable[..., Any]) -> Several:
    """An operation on several arrays, one after the other, in the order in which JAX lists them."""

    def operation(
        tensors: Sequence[jax.Array], *arguments: Any, name: str | None = None, **options: Any
    ) -> list[jax.Array]:
        names = [None if name is None else f"{name}.{at}" for at in range(len(tensors))]
        return [
            single(tensor, *arguments, name=each, **options)
            for tensor, each in zip(tensors, names, strict=True)
        ]

    return operation


allreduce = over_trees(ops.allreduce, ops.grouped_allreduce)
allgather = over_trees(ops.allgather, ops.grouped_allgather)
reducescatter = over_trees(ops.reducescatter, ops.grouped_reducescatter)
broadcast = over_trees(ops.broadcast, each_of(ops.broadcast))
alltoall = over_trees(ops.alltoall, each_of(ops.alltoall))
