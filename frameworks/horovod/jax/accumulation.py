"""Gradients of several passes, which each rank adds up before they travel.

``optax.MultiSteps`` calls the optimizer in every pass, and multiplies what it returns by zero in all but the
last one: gradients would travel in each of them, and one that is infinite would leave NaN in the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Update = Callable[..., "tuple[Any, Any]"]


def in_steps(optimizer: Any, update: Update, passes: int, averages: bool) -> Any:
    """An optimizer of optax that changes the parameters in the last one of every so many passes.

    Args:
        optimizer: of which it has the state, in an ``optax.MultiStepsState``.
        update: that of ``optimizer`` which reduces the gradients first.
        passes: how many gradients are added up.
        averages: divides them by ``passes``.

    Returns:
        An ``optax.GradientTransformationExtraArgs``.
    """
    import optax

    def init(params: Any) -> Any:
        return optax.MultiStepsState(
            mini_step=jnp.zeros([], jnp.int32),
            gradient_step=jnp.zeros([], jnp.int32),
            inner_opt_state=optimizer.init(params),
            acc_grads=_map(_wide_zeros, params),
        )

    def accumulate(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        count = state.mini_step + 1

        def added(gradient: Any, total: jax.Array) -> jax.Array:
            if gradient is None or total is None:
                return total
            # The mean so far: a sum may overflow where the mean does not.
            change = (gradient - total) / count if averages else gradient
            return total + jnp.asarray(change, total.dtype)

        totals = _map(added, updates, state.acc_grads)
        given = _map(_cast, totals, updates)

        def last_pass() -> tuple[Any, Any]:
            changes, inner = update(given, state.inner_opt_state, params, **more)
            return changes, state._replace(
                mini_step=jnp.zeros_like(count),
                gradient_step=state.gradient_step + 1,
                inner_opt_state=_map(_cast, inner, state.inner_opt_state),
                acc_grads=_map(_zeros, totals),
            )

        def earlier_pass() -> tuple[Any, Any]:
            changes = jax.eval_shape(
                lambda: optimizer.update(given, state.inner_opt_state, params, **more)[0]
            )
            return _map(_zeros, changes), state._replace(mini_step=count, acc_grads=totals)

        if isinstance(count, jax.core.Tracer):
            return jax.lax.cond(count == passes, last_pass, earlier_pass)
        return last_pass() if count == passes else earlier_pass()

    return optax.GradientTransformationExtraArgs(init, accumulate)


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    """Over the leaves of trees, among which there may be None."""
    return jax.tree_util.tree_map(function, *trees, is_leaf=lambda leaf: leaf is None)


def _wide_zeros(param: Any) -> Any:
    """In which halves can be added up."""
    if param is None:
        return None
    return jnp.zeros(jnp.shape(param), jnp.promote_types(jnp.result_type(param), jnp.float32))


def _zeros(value: Any) -> Any:
    return None if value is None else jnp.zeros(value.shape, value.dtype)


def _cast(value: Any, like: Any) -> Any:
    """``lax.cond`` wants the same types of both branches."""
    if value is None or like is None:
        return None
    dtype = jnp.asarray(like).dtype
    return value if value.dtype == dtype else value.astype(dtype)
