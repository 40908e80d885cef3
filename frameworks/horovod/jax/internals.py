"""What this adapter takes from inside JAX, which has no public name for it: effects that keep operations in
order, and the operation by which a compiled program calls a function, of which JAX's own callbacks are made;
and whether JAX traces.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import jax

try:
    from jax._src import core, dispatch, effects
    from jax._src.interpreters import mlir
except ImportError as error:
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


EFFECT = CollectiveEffect()

_LONGEST_END = 30.0  # seconds; other ranks may never come

for _kind in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.remat_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _kind.add_type(CollectiveEffect)


def is_tracing() -> bool:
    """Whether JAX traces what this thread runs: then arrays whose values are known, too, are a part of a
    program, which runs more often than it is traced.
    """
    return not core.trace_state_clean()


def call_in_order(ctx: Any, target: str, operands: Any, attributes: dict[str, Any]) -> Any:
    """The lowering of a call to a function of ours, behind all such calls before it.

    Args:
        ctx: of the lowering rule.
        target: the name under which the function is registered.
        operands: of the program.
        attributes: what the function is told beside them.

    Returns:
        The results.
    """
    token = ctx.tokens_in.get(EFFECT)
    given = token[0] if isinstance(token, (tuple, list)) else token
    call = mlir.custom_call(
        target,
        result_types=[mlir.token_type(), *map(_type_of, ctx.avals_out)],
        operands=[given, *operands],
        backend_config={name: mlir.ir_attribute(value) for name, value in attributes.items()},
        has_side_effect=True,
        api_version=4,
        operand_layouts=[(), *map(_row_major, ctx.avals_in)],
        result_layouts=[(), *map(_row_major, ctx.avals_out)],
    )
    behind, *results = call.results
    made = (behind,) if isinstance(token, (tuple, list)) else behind
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({EFFECT: made})))
    return results


def _type_of(aval: Any) -> Any:
    return mlir.ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def _row_major(aval: Any) -> tuple[int, ...]:
    return tuple(reversed(range(len(aval.shape))))


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
