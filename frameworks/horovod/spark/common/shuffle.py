"""Rows in random order, out of a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .arrow import Batch, empty, rows_of


def shuffled(chunks: Iterable[Batch], limit: int, random: np.random.Generator) -> Iterator[Batch]:
    """The rows of the chunks in another order.

    At most ``limit`` rows are held. Once there are so many, each row that comes takes the place of one that
    is picked at random and goes. If ``limit`` is the number of all rows, each order is equally likely.
    """
    pool: Batch = {}
    held = 0
    for chunk in chunks:
        rows = rows_of(chunk)
        if not pool:
            pool = {
                name: np.empty((limit, *values.shape[1:]), values.dtype) for name, values in chunk.items()
            }
        filled = min(limit - held, rows)
        for name, values in chunk.items():
            pool[name][held : held + filled] = values[:filled]
        held += filled
        for start in range(filled, rows, limit):
            yield _exchanged(
                pool, {name: values[start : start + limit] for name, values in chunk.items()}, random
            )
    order = random.permutation(held)
    step = max(held // 16, 1)  # the rest is copied in parts, not as a whole
    for start in range(0, held, step):
        yield _rows_at(pool, order[start : start + step])


def _exchanged(pool: Batch, chunk: Batch, random: np.random.Generator) -> Batch:
    """Puts the rows of the chunk in place of as many of the pool, which are returned."""
    places = random.choice(rows_of(pool), rows_of(chunk), replace=False)
    gone = _rows_at(pool, places)
    for name, values in chunk.items():
        pool[name][places] = values
    return gone


def _rows_at(pool: Batch, places: np.ndarray) -> Batch:
    """A copy of these rows."""
    gone = {name: empty((len(places), *values.shape[1:]), values.dtype) for name, values in pool.items()}
    for name, values in pool.items():
        values.take(places, axis=0, out=gone[name], mode="clip")  # "raise" would copy twice
    return gone
