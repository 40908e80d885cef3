"""Operations in what JAX traces: the call that becomes part of the program, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.basics import rank
from horovod.common.collective.gradients import RecordedOperation, gradient_op, scattered_gradients
from horovod.common.collective.operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    OPERATIONS,
    REDUCESCATTER,
)
from horovod.common.process_sets import ProcessSet
from horovod.jax import internals
from horovod.jax.primitive import Call, collective_p
from horovod.jax.tensors import as_array
from horovod.xla.parts import parts_of
from horovod.xla.shapes import result_shapes

if TYPE_CHECKING:
    from horovod.common.collective.collectives import Collectives

_OPERATIONS = {operation.name: operation for operation in OPERATIONS}
_KINDS = {
    "allreduce": ALLREDUCE,
    "allgather": ALLGATHER,
    "broadcast": BROADCAST,
    "alltoall": ALLTOALL,
    "reducescatter": REDUCESCATTER,
}


def run_traced(
    ops: Collectives[jax.Array], name: str, tensors: Sequence[jax.Array], arguments: Sequence[Any]
) -> list[jax.Array]:
    """Makes an operation part of the program.

    Args:
        ops: the operations, for the gradient.
        name: of the operation, in ``operations.OPERATIONS``.
        tensors: one, or those of a group.
        arguments: in the order of that list.

    Returns:
        The results.
    """
    if not tensors:
        return []
    done = RecordedOperation(ops, _OPERATIONS[name], arguments)
    kind = name.removeprefix("grouped_")

    @jax.custom_vjp
    def run(*given: jax.Array) -> list[jax.Array]:
        if _is_compiled(given):
            done.rows = [ops.glue.row_count(tensor) for tensor in given]
            return collective_p.bind(*given, call=_call(kind, done.arguments, given))
        made = done.run(given)
        return list(made) if done.grouped else [made[0] if kind == "alltoall" else made]

    def forward(*given: jax.Array) -> tuple[list[jax.Array], Sequence[jax.Array]]:
        return run(*given), given if done.needs_tensors else ()  # by `run`: for gradients of gradients

    def backward(kept: Sequence[jax.Array], gradients: Sequence[jax.Array]) -> tuple[Any, ...]:
        having = [place for place, each in enumerate(gradients) if each.dtype != jax.dtypes.float0]
        if not having:
            return (None,) * len(gradients)
        part = done.of_tensors(having)
        rule = _RULES[kind] if kind in _RULES and _is_compiled(gradients) else None
        theirs, tensors = ([each[place] for place in having if each] for each in (gradients, kept))
        found = part.gradients(theirs, tensors) if rule is None else rule(ops, theirs, part)
        by_place = dict(zip(having, found, strict=True))
        return tuple(map(by_place.get, range(len(gradients))))

    run.defvjp(forward, backward)
    results = list(run(*map(as_array, tensors)))
    return [*results, ops.glue.integer_tensor(done.received, None)] if kind == "alltoall" else results


def _is_compiled(tensors: Sequence[jax.Array]) -> bool:
    """Whether it becomes part of a program; ``jax.grad`` alone has the values."""
    return internals.is_tracing() or any(isinstance(tensor, jax.core.Tracer) for tensor in tensors)


def _call(kind: str, arguments: dict[str, Any], tensors: Sequence[jax.Array]) -> Call:
    process_set: ProcessSet = arguments["process_set"]
    splits: tuple[int, ...] = ()
    if arguments.get("splits") is not None:
        raise ValueError(
            "Inside a function that JAX traces, alltoall takes no splits: the shape of its result must be "
            "known. Send equally many rows to all, padded, or call it outside."
        )
    given = [tuple(tensor.shape) for tensor in tensors]
    shapes = result_shapes(_KINDS[kind], given, process_set)
    if kind == "alltoall":
        size = process_set.size() or 1
        splits = (given[0][0] // size,) * size
    return Call(
        _KINDS[kind],
        arguments.get("op", 0),
        float(arguments.get("prescale_factor", 1.0)),
        float(arguments.get("postscale_factor", 1.0)),
        arguments.get("root_rank", 0),
        process_set.process_set_id or 0,
        arguments["name"],
        splits,
        tuple(shapes),
        parts_of([tensor.nbytes for tensor in tensors]) if kind == "allreduce" else (),
    )


def _allgather(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    """As everywhere, where all ranks have equally many rows."""
    name, place = done.backward_name(), done.process_set.rank() or 0
    reduced = ops.grouped_allreduce(gradients, name=name, op=gradient_op(), process_set=done.process_set)
    return [
        ops.glue.rows(tensor, place * count, count) for tensor, count in zip(reduced, done.rows, strict=True)
    ]


def _broadcast(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    """As everywhere; what it returns depends on the ranks' gradients on all of them, for all take part in the
    gradient of this one.
    """
    reduced = ops.allreduce(
        gradients[0], None, done.backward_name(), op=gradient_op(), process_set=done.process_set
    )
    return [jnp.where(rank() == done.arguments["root_rank"], reduced, jnp.zeros_like(reduced))]


def _alltoall(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    return [ops.alltoall(gradients[0], None, done.backward_name(), done.process_set)]


def _reducescatter(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    """As everywhere; ranks that have a row less than others send one more, which is left out."""
    size = done.process_set.size() or 1
    scaled = scattered_gradients(ops, gradients, done)
    full = [_with_rows(tensor, -(-rows // size)) for tensor, rows in zip(scaled, done.rows, strict=True)]
    gathered = ops.grouped_allgather(full, done.backward_name(), done.process_set)
    return [
        tensor[_dealt_out(rows, size)] if rows % size else tensor
        for tensor, rows in zip(gathered, done.rows, strict=True)
    ]


def _with_rows(tensor: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(tensor, [(0, rows - tensor.shape[0]), *[(0, 0)] * (tensor.ndim - 1)])


def _dealt_out(rows: int, size: int) -> np.ndarray[Any, Any]:
    """Where the rows are, when each of the ranks has room for as many."""
    room, more = -(-rows // size), rows % size
    return np.concatenate([place * room + np.arange(room - (place >= more)) for place in range(size)])


_RULES = {
    "allgather": _allgather,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reducescatter": _reducescatter,
}
"""In place of those of ``gradients.RULES`` that ask the ranks how many rows they have, or differ by rank."""
