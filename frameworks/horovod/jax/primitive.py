"""The collectives as one primitive of JAX: what it is in a compiled program, outside of one, and under
``vmap``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from horovod.common.collective.handles import Submission
from horovod.common.collective.operations import ALLREDUCE, BROADCAST
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.common.reduce_ops import Adasum
from horovod.jax import internals
from horovod.jax.tensors import dtype_number
from horovod.xla import library

_LIKE_INPUT = (ALLREDUCE, BROADCAST)


class Call(NamedTuple):
    """What a collective is told beside its arrays; constants of a compiled program.

    Attributes:
        kind: of the operation, a number of the core.
        op: the reduction.
        prescale: multiplies what is reduced.
        postscale: multiplies the result.
        root: the rank that sends.
        process_set: the number of the set.
        name: None: unnamed.
        splits: of an alltoall, how many rows go to each rank.
        shapes: of the results.
        parts: of an allreduce that travels while its program goes on: how many arrays, in turn, start as soon
            as they are computed.
    """

    kind: int
    op: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    process_set: int = 0
    name: str | None = None
    splits: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def by_rows(self) -> bool:
        """Whether the first dimension has a meaning."""
        return self.kind not in _LIKE_INPUT


collective_p = Primitive("horovod_collective")
collective_p.multiple_results = True


def define(ops: Submission[jax.Array]) -> None:
    """Defines the primitive; outside of compiled programs it runs by ``ops``."""
    for target, platform, function in library.HANDLERS:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(library.handler(function)), platform=platform)
    collective_p.def_effectful_abstract_eval(_abstract)
    collective_p.def_impl(lambda *arrays, call: _run(ops, arrays, call))
    mlir.register_lowering(collective_p, _lower, platform="cpu")
    mlir.register_lowering(collective_p, _lower_whole, platform="cuda")
    mlir.register_lowering(collective_p, _refuse)
    batching.primitive_batchers[collective_p] = _batch


def _abstract(*avals: Any, call: Call) -> tuple[list[Any], set[Any]]:
    for aval in avals:
        dtype_number(aval)
    results = [aval.update(shape=shape) for aval, shape in zip(avals, call.shapes, strict=True)]
    return results, internals.EFFECTS


def _run(ops: Submission[jax.Array], arrays: Sequence[jax.Array], call: Call) -> list[jax.Array]:
    purpose = Purpose(call.kind, call.op, call.prescale, call.postscale)
    result = Result.FROM_CORE if call.by_rows else Result.LIKE_INPUT
    placements = ops.place_group(list(arrays), result, purpose)

    def finish(placements: Any, outputs: Any) -> list[jax.Array]:
        given = outputs or [None] * len(placements)  # those of an alltoall end with its counts
        return [placement.finish(output) for placement, output in zip(placements, given, strict=False)]

    handle = ops.start(
        purpose,
        call.name,
        placements,
        len(placements) > 1,
        call.root,
        call.process_set,
        call.splits or None,
        finish,
    )
    return ops.synchronize(handle)


def _lower(ctx: Any, *operands: Any, call: Call) -> Any:
    attributes = {
        "kind": np.int64(call.kind),
        "reduce_op": np.int64(call.op),
        "prescale": np.float64(call.prescale),
        "postscale": np.float64(call.postscale),
        "root": np.int64(call.root),
        "process_set": np.int64(call.process_set),
        "name": call.name or "",
        "splits": np.asarray(call.splits, np.int64),
    }
    if not call.parts:
        in_place = call.kind in _LIKE_INPUT
        return internals.call_in_order(ctx, library.TARGET, operands, attributes, in_place)
    attributes = {
        **attributes,
        "name": f"{call.name or 'allreduce'}.part",
        "parts": np.int64(len(call.parts)),
    }
    return internals.call_in_parts(ctx, library.START, library.TAKE, operands, call.parts, attributes)


def _lower_whole(ctx: Any, *operands: Any, call: Call) -> Any:
    """On a GPU, whose arrays pass through the host one call after the other."""
    return _lower(ctx, *operands, call=call._replace(parts=()))


def _refuse(ctx: Any, *operands: Any, call: Call) -> Any:
    raise NotImplementedError(
        "Inside compiled functions horovod.jax runs on CPUs and on GPUs of CUDA: call it outside of jax.jit, "
        "where arrays of other devices pass through host memory."
    )


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, call: Call) -> tuple[list[Any], list[int]]:
    """All ranks map alike, so the batch travels whole: as one more dimension, behind that of the rows. Only
    vectors that are to be combined by Adasum travel one after the other.
    """
    to = 1 if call.by_rows else 0
    (size,) = {array.shape[dim] for array, dim in zip(arrays, dims, strict=True) if dim is not None}
    moved = [
        jnp.broadcast_to(jnp.expand_dims(array, to), (*array.shape[:to], size, *array.shape[to:]))
        if dim is None
        else jnp.moveaxis(array, dim, to)
        for array, dim in zip(arrays, dims, strict=True)
    ]
    if call.kind == ALLREDUCE and call.op == Adasum:  # of the batch it would make one vector
        return list(jax.lax.map(lambda each: collective_p.bind(*each, call=call), moved)), [0] * len(moved)
    shapes = tuple((*shape[:to], size, *shape[to:]) for shape in call.shapes)
    return collective_p.bind(*moved, call=call._replace(shapes=shapes)), [to] * len(moved)
