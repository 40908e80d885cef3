"""Gradients in compiled functions that those of one operation, outside, have not shown: of several types, of
rows that cannot be shared equally, of gradients.
"""

from collections.abc import Callable
from typing import Any

import check_jax  # noqa: F401  # skips
import jax
import jax.numpy as jnp
import numpy as np

import horovod.jax as hvd


def both(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    return jax.grad(function), jax.jit(jax.grad(function))


def ranks_differentiate_integers() -> None:
    """Integers have no gradient; beside what has one they travel."""
    hvd.init()
    size, place = hvd.size(), hvd.rank()
    w, total = jnp.full(3, 1.0 + place), sum(1.0 + rank for rank in range(size))

    def counted(w: Any, factor: Any) -> Any:
        reduced, count, factor = hvd.allreduce((w, (w > 0).sum(), factor), op=hvd.Sum)
        return (reduced**2).sum() * factor / count

    def gathered(w: Any, factor: Any) -> Any:
        rows, positive = hvd.allgather((w, w > 0))
        return (rows**2).sum() * factor / positive.sum()

    def alone(w: Any, factor: Any) -> Any:
        return (w**2).sum() * hvd.allreduce(factor, op=hvd.Sum) / hvd.broadcast((w > 0).sum(), 0)

    for gradient in both(counted):
        np.testing.assert_allclose(gradient(w, 2), np.full(3, size * 2 * total * (2 * size) / (3 * size)))
    for gradient in both(gathered):
        np.testing.assert_allclose(gradient(w, 2), 2 * w * 2 / (3 * size))
    for gradient in both(alone):
        np.testing.assert_allclose(gradient(w, 2), 2 * w * (2 * size) / 3)


def test_integers_beside_numbers_that_have_a_gradient(run_ranks) -> None:
    run_ranks(2, ranks_differentiate_integers)


def ranks_share_rows_unequally() -> None:
    hvd.init()
    size, place = hvd.size(), hvd.rank()
    for shape in ((5, 2), (1,), (7, 0), (6,)):
        total = sum(np.arange(np.prod(shape)).reshape(shape) + rank for rank in range(size))
        parts = [part * 2 * (rank + 1) for rank, part in enumerate(np.array_split(total, size))]
        expected = size * np.concatenate(parts)

        def loss(x: Any) -> Any:
            return (hvd.reducescatter(x, op=hvd.Sum) ** 2).sum() * (place + 1)

        mine = jnp.arange(float(np.prod(shape))).reshape(shape) + place
        for gradient in both(loss):
            np.testing.assert_allclose(gradient(mine), expected)
        mapped = jax.jit(jax.vmap(jax.grad(loss), in_axes=-1, out_axes=-1))
        np.testing.assert_allclose(mapped(mine[..., None])[..., 0], expected)


def test_reducescatter_of_rows_that_cannot_be_shared_equally(run_ranks) -> None:
    run_ranks(3, ranks_share_rows_unequally)


def ranks_differentiate_twice() -> None:
    """The gradient of x -> sum of (operation(x) ** 3), and that of its sum, weighted."""
    hvd.init()
    size, place = hvd.size(), hvd.rank()
    rows = 2 * size
    all_ranks = [np.random.default_rng(rank).uniform(1, 2, size=rows) for rank in range(size)]
    mine, total, product = all_ranks[place], sum(all_ranks), np.prod(all_ranks, axis=0)
    weights = np.random.default_rng(9).uniform(1, 2, size=rows)  # equal on all ranks
    # d/dx of the ranks' gradients 3 size p^2 (p / x_r), added up: by p, and by what divides it
    others = sum(1 / theirs for theirs in all_ranks)
    of_product = 3 * size * product**3 * (3 * others / mine - 1 / mine**2)
    of_root = 6 * mine if place == 1 else np.zeros(rows)  # of averages, on the root
    cases: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), 6 * total * size * size),
        "product": (lambda x: hvd.allreduce(x, op=hvd.Product), of_product),
        "alltoall": (hvd.alltoall, 6 * mine),
        "allgather": (hvd.allgather, 6 * mine / size),
        "reducescatter": (lambda x: hvd.reducescatter(x, op=hvd.Sum), 6 * total * size * size),
        "broadcast": (lambda x: hvd.broadcast(x, 1), of_root / size),
    }
    for name, (operation, expected) in cases.items():

        def weighted(x: Any, operation: Callable[[Any], Any] = operation) -> Any:
            return (jax.grad(lambda x: (operation(x) ** 3).sum())(x) * weights).sum()

        for second in both(weighted):
            np.testing.assert_allclose(second(jnp.asarray(mine)), expected * weights, 1e-12, err_msg=name)


def test_gradients_of_gradients(run_ranks) -> None:
    run_ranks(3, ranks_differentiate_twice)
