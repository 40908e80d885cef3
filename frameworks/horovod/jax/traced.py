"""Operations in what JAX traces: the call that becomes part of the program, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from horovod.common.collective.gradients import RecordedOperation, gradient_op
from horovod.common.collective.operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    OPERATIONS,
    REDUCESCATTER,
)
from horovod.common.process_sets import ProcessSet
from horovod.jax.primitive import Call, collective_p

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
        return forward(*given)[0]

    def forward(*given: jax.Array) -> tuple[list[jax.Array], Sequence[jax.Array]]:
        if _is_compiled(given):
            done.rows = [ops.glue.row_count(tensor) for tensor in given]
            results = collective_p.bind(*given, call=_call(kind, done.arguments, given))
        else:
            made = done.run(given)
            results = list(made) if done.grouped else [made[0] if kind == "alltoall" else made]
        return results, given if done.needs_tensors else ()

    def backward(kept: Sequence[jax.Array], gradients: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        if kind in _RULES and _is_compiled(gradients):
            return tuple(_RULES[kind](ops, gradients, done))
        return tuple(done.gradients(gradients, kept))

    run.defvjp(forward, backward)
    results = list(run(*tensors))
    return [*results, ops.glue.integer_tensor(done.received, None)] if kind == "alltoall" else results


def _is_compiled(tensors: Sequence[jax.Array]) -> bool:
    """Whether only shapes are known; ``jax.grad`` alone has the values."""
    return any(isinstance(tensor, jax.core.Tracer) for tensor in tensors)


def _call(kind: str, arguments: dict[str, Any], tensors: Sequence[jax.Array]) -> Call:
    process_set: ProcessSet = arguments["process_set"]
    size, place = process_set.size() or 1, process_set.rank() or 0
    shapes = [tuple(tensor.shape) for tensor in tensors]
    splits: tuple[int, ...] = ()
    if kind in ("allgather", "alltoall", "reducescatter") and not all(shapes):
        raise ValueError(f"{kind} goes by the first dimension and a scalar has none; reshape it to (1,).")
    if kind == "allgather":
        shapes = [(shape[0] * size, *shape[1:]) for shape in shapes]
    elif kind == "reducescatter":
        shapes = [(shape[0] // size + (place < shape[0] % size), *shape[1:]) for shape in shapes]
    elif kind == "alltoall":
        splits = (_even_split(arguments["splits"], shapes[0][0], size),) * size
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
    )


def _even_split(splits: Any, rows: int, size: int) -> int:
    if splits is not None:
        raise ValueError(
            "Inside a function that JAX traces, alltoall takes no splits: the shape of its result must be "
            "known. Send equally many rows to all, padded, or call it outside."
        )
    if rows % size:
        raise ValueError(f"alltoall cannot share {rows} rows equally among {size} ranks.")
    return rows // size


def _allgather(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    """As everywhere, where all ranks have equally many rows."""
    name, place = done.backward_name(), done.process_set.rank() or 0
    reduced = ops.grouped_allreduce(gradients, name=name, op=gradient_op(), process_set=done.process_set)
    return [
        ops.glue.rows(tensor, place * count, count) for tensor, count in zip(reduced, done.rows, strict=True)
    ]


def _alltoall(
    ops: Collectives[jax.Array], gradients: Sequence[jax.Array], done: RecordedOperation[jax.Array]
) -> list[jax.Array]:
    return [ops.alltoall(gradients[0], None, done.backward_name(), done.process_set)]


_RULES = {"allgather": _allgather, "alltoall": _alltoall}
"""In place of those of ``gradients.RULES`` that ask the ranks how many rows they have."""
