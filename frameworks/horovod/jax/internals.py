"""What this adapter takes from inside JAX, which has no public name for it: effects that keep operations in
order, and the operation by which a compiled program calls a function, of which JAX's own callbacks are made;
and whether JAX traces.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

try:
    from jax._src import core, dispatch, effects
    from jax._src.interpreters import mlir, pxla

    _wait_for_token_of_jax = pxla.shard_arg_handlers[core.Token]
except (ImportError, AttributeError, KeyError) as error:
    raise ImportError(
        f"JAX {jax.__version__} keeps the order of effects elsewhere; see docs/jax.md for the versions that "
        "horovod.jax works with"
    ) from error


class CollectiveEffect(effects.Effect):
    """Of every collective of a compiled program. JAX runs what has it in the order of the program, and
    programs in the order of their calls: so all ranks run their collectives in one order.
    """

    def __str__(self) -> str:
        return "Collective"

    def __repr__(self) -> str:
        """How JAX ends its error for a program of several devices."""
        return (
            "those of horovod.jax, whose operations are for programs of one device: reduce over the devices "
            "of this rank in the compiled function, and call hvd outside of it"
        )


class WithoutOrder(effects.Effect):
    """Beside the other: JAX calls what is compiled ahead (``lower(...).compile()``) by a shorter way from the
    second call on, which leaves effects out, and takes that way unless there is one without order.
    """

    def __str__(self) -> str:
        return "Collective, without order"


EFFECT = CollectiveEffect()
EFFECTS = {EFFECT, WithoutOrder()}

_LONGEST_END = 30.0  # seconds; other ranks may never come
_ANOTHER_FAILED = "Error dispatching computation: "  # of a program behind a failed one, in words of JAX
_told = ""  # the last cause

effects.ordered_effects.add_type(CollectiveEffect)
for _kind in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.remat_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _kind.add_type(CollectiveEffect)
    _kind.add_type(WithoutOrder)


def _wait_for_token(tokens: Any, *how: Any) -> Any:
    """How JAX waits, before it runs a program, for that before it. The token of one that has failed would
    make all programs after it fail; whether it has failed by now differs between ranks, so here the next one
    runs on every rank. The error is told where results are read.
    """
    try:
        return _wait_for_token_of_jax(tokens, *how)
    except Exception as error:
        latest = dispatch.runtime_tokens.current_tokens  # of this thread
        if any(token is not latest.get(EFFECT) for token in tokens):
            raise  # of another effect
        del latest[EFFECT]
        _tell_once(str(error).rpartition(_ANOTHER_FAILED)[2])
        return pxla.shard_arg_handlers[np.ndarray]([np.zeros(0, np.bool_)] * len(tokens), *how)


pxla.shard_arg_handlers[core.Token] = _wait_for_token


def _tell_once(cause: str) -> None:
    """One failed step is the end of all that were called behind it: of one cause they are one message."""
    global _told
    if not _told.endswith(cause):  # the first begins with a status
        _told = cause
        logging.getLogger("horovod").warning("a compiled function that was called before failed: %s", cause)


def is_tracing() -> bool:
    """Whether JAX traces what this thread runs: then arrays whose values are known, too, are a part of a
    program, which runs more often than it is traced.
    """
    return not core.trace_state_clean()


def call_in_order(
    ctx: Any, target: str, operands: Any, attributes: dict[str, Any], in_place: bool = False
) -> Any:
    """The lowering of a call to a function of ours, behind all such calls before it.

    Args:
        ctx: of the lowering rule.
        target: the name under which the function is registered.
        operands: of the program.
        attributes: what the function is told beside them.
        in_place: whether each result may lie where its operand does: XLA copies one that is needed later.

    Returns:
        The results.
    """
    return _call_behind(ctx, target, operands, ctx.avals_in, attributes, in_place)


def call_in_parts(
    ctx: Any, start: str, take: str, operands: Any, parts: Sequence[int], attributes: dict[str, Any]
) -> Any:
    """The lowering of a call whose results are taken behind all such calls before it, while its operands are
    given away as soon as they are computed.

    Args:
        ctx: of the lowering rule.
        start: the name of the function that is given a part of the operands. It does not wait, so XLA may
            call it for one part before or behind another.
        take: the name of the function that returns the results.
        operands: of the program.
        parts: how many of them, in turn, are given away together.
        attributes: what both are told beside them.

    Returns:
        The results.
    """
    ticket = core.ShapedArray((), np.dtype(np.int32))  # makes the one come behind the others
    given, avals, tickets = iter(operands), iter(ctx.avals_in), []
    for part, count in enumerate(parts):
        own = {**attributes, "part": np.int64(part)}
        taken = [_token(ctx), *itertools.islice(given, count)]
        tickets += _call(start, taken, [None, *itertools.islice(avals, count)], [ticket], own)
    return _call_behind(ctx, take, tickets, [ticket] * len(tickets), attributes)


def _call_behind(
    ctx: Any, target: str, operands: Any, avals: Any, attributes: dict[str, Any], in_place: bool = False
) -> Any:
    given, made = [_token(ctx), *operands], [None, *ctx.avals_out]
    places = {at: at for at in range(1, len(given))} if in_place else {}
    behind, *results = _call(target, given, [None, *avals], made, attributes, places)
    alone = not isinstance(ctx.tokens_in.get(EFFECT), (tuple, list))
    token = mlir.TokenSet({EFFECT: behind if alone else (behind,)})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(token))
    return results


def _token(ctx: Any) -> Any:
    token = ctx.tokens_in.get(EFFECT)
    return token[0] if isinstance(token, (tuple, list)) else token


def _call(
    target: str,
    operands: Any,
    given: Any,
    made: Any,
    attributes: dict[str, Any],
    places: dict[int, int] | None = None,
) -> Any:
    """``given``, ``made``: what operands and results are; None: a token. ``places``: which result lies where
    which operand does.
    """
    call = mlir.custom_call(
        target,
        result_types=[mlir.token_type() if aval is None else _type_of(aval) for aval in made],
        operands=operands,
        backend_config={name: mlir.ir_attribute(value) for name, value in attributes.items()},
        has_side_effect=True,
        api_version=4,
        operand_layouts=list(map(_row_major, given)),
        result_layouts=list(map(_row_major, made)),
        operand_output_aliases=places,
    )
    return call.results


def _type_of(aval: Any) -> Any:
    return mlir.ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def _row_major(aval: Any) -> tuple[int, ...]:
    return () if aval is None else tuple(reversed(range(len(aval.shape))))


def wait_for_programs() -> None:
    """Waits until the programs that this thread has called have run. The error of one that has failed is
    raised once: what is called next need not come behind it.
    """
    try:
        jax.effects_barrier()
    except BaseException:
        dispatch.runtime_tokens.clear()  # of this thread
        raise


def let_programs_end() -> None:
    """Waits until the programs that this thread has called have run, or failed. Those that have failed are
    forgotten: what is called next need not come behind them.
    """
    tokens = dispatch.runtime_tokens  # of this thread
    latest = [*tokens.current_tokens.values(), *tokens.output_runtime_tokens.values()]
    if latest:
        thread = threading.Thread(target=_wait_for, args=(latest,), name="hvd-programs", daemon=True)
        thread.start()
        thread.join(_LONGEST_END)
    tokens.clear()


def _wait_for(tokens: list[Any]) -> None:
    with contextlib.suppress(Exception):  # where their results are read, the program is told
        for token in tokens:
            token.block_until_ready()
