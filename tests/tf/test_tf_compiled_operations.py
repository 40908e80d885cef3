"""Every operation in functions that XLA compiles: types and process sets against numpy, gradients against
those outside, gradients of gradients, calls of such functions from others, rows that differ between ranks.
"""

import random
from collections.abc import Callable
from typing import Any

import check_compiled  # noqa: F401  # skips
import numpy as np
import pytest
import reference
import tensorflow as tf
from matrix import TRANSPORTS, check_digests, run_table
from operations import Case
from tensorflow_glue import TYPES, TensorFlowRunning

import horovod.tensorflow as hvd


def compiled(function: Callable[..., Any]) -> Any:
    return tf.function(function, jit_compile=True, autograph=False)


def is_even(running: TensorFlowRunning) -> bool:
    """Whether all ranks bring as many rows, as they must in a compiled function."""
    gathers = running.case.kind in ("allgather", "grouped_allgather")
    return not gathers and "splits" not in running.plan.options


def ranks_matrix() -> dict[str, str]:
    return run_table(hvd, 1, run_compiled)


def run_compiled(_: int, cases: list[Case], order: random.Random) -> list[TensorFlowRunning]:
    """All that can be, in one function."""
    window = [TensorFlowRunning(case) for case in cases if case.dtype in TYPES]
    window = list(filter(is_even, window))

    @compiled
    def together(inputs: list[Any]) -> list[Any]:
        results = []
        for running, mine in zip(window, inputs, strict=True):
            with tf.name_scope(running.scope()):
                results.append(running.called_with(mine))
        return results

    results = together([running.mine for running in window]) if window else []
    for running, called in zip(window, results, strict=True):
        running.called = called
    return window


# XLA takes half a minute for the table, and does not know how many ranks meet in which way. Three have sets
# that overlap.
REST = [(2, "shm"), *((4, transport) for transport in TRANSPORTS)]


@pytest.mark.parametrize(
    ("ranks", "transport"), [(3, "tcp"), *(pytest.param(*case, marks=pytest.mark.full) for case in REST)]
)
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    check_digests(run_ranks(ranks, ranks_matrix, env={"HOROVOD_TRANSPORT": transport}, timeout=110))


def operations(size: int) -> dict[str, Callable[[tf.Tensor], Any]]:
    pair = {"prescale_factor": 0.1, "postscale_factor": 3.0}
    return {
        "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, **pair),
        "max": lambda x: hvd.allreduce(x, op=hvd.Max),
        "product": lambda x: hvd.allreduce(x, op=hvd.Product),
        "group": lambda x: tf.concat(hvd.grouped_allreduce([x[:1], x[1:]], op=hvd.Average), 0),
        "allgather": hvd.allgather,
        "broadcast": lambda x: hvd.broadcast(x, 1),
        "alltoall": hvd.alltoall,
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, **pair),
        "unequal reducescatter": lambda x: hvd.reducescatter(x[1:], op=hvd.Average),
        "group of reducescatters": lambda x: tf.concat(hvd.grouped_reducescatter([x, x[1:] * 2.0]), 0),
    }


def ranks_differentiate() -> None:
    """As outside, where the gradients are tested against numpy."""
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    x = tf.constant(reference.numbers(rank, "float64", (2 * size, 3)) + 0.5)
    for name, operation in operations(size).items():

        def gradient(x: tf.Tensor, operation: Callable[[tf.Tensor], Any] = operation) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(operation(x) ** 2) * (rank + 1)
            return tape.gradient(loss, x)

        found = compiled(gradient)(x)
        np.testing.assert_allclose(found, gradient(x), 1e-12, err_msg=name)
        with tf.GradientTape() as tape:  # around the function, whose gradient is one of its own
            tape.watch(x)
            loss = tf.reduce_sum(compiled(operation)(x) ** 2) * (rank + 1)
        np.testing.assert_allclose(tape.gradient(loss, x), found, 1e-12, err_msg=name)


@pytest.mark.parametrize("one_process", ["0", "1"])
def test_gradients(run_ranks, one_process: str) -> None:
    run_ranks(3, ranks_differentiate, env={"HOROVOD_ONE_PROCESS_GRADIENTS": one_process}, timeout=100)


def ranks_differentiate_twice() -> None:
    """The gradient of the weighted sum of the gradient of the sum of operation(x) ** 3."""
    hvd.init()
    size, place = hvd.size(), hvd.rank()
    all_ranks = [np.random.default_rng(rank).uniform(1, 2, size=2 * size) for rank in range(size)]
    mine, total, product = all_ranks[place], sum(all_ranks), np.prod(all_ranks, axis=0)
    weights = np.random.default_rng(9).uniform(1, 2, size=2 * size)  # equal on all ranks
    # d/dx of the ranks' gradients 3 size p^2 (p / x_r), added up: by p, and by what divides it
    others = sum(1 / theirs for theirs in all_ranks)
    of_product = 3 * size * product**3 * (3 * others / mine - 1 / mine**2)
    of_root = 6 * mine if place == 1 else np.zeros(2 * size)  # of averages, on the root
    expected = {
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), 6 * total * size * size),
        "product": (lambda x: hvd.allreduce(x, op=hvd.Product), of_product),
        "alltoall": (hvd.alltoall, 6 * mine),
        "allgather": (hvd.allgather, 6 * mine / size),
        "reducescatter": (lambda x: hvd.reducescatter(x, op=hvd.Sum), 6 * total * size * size),
        "broadcast": (lambda x: hvd.broadcast(x, 1), of_root / size),
    }
    for name, (operation, second) in expected.items():

        @compiled
        def twice(x: tf.Tensor, operation: Callable[[tf.Tensor], tf.Tensor] = operation) -> tf.Tensor:
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    loss = tf.reduce_sum(operation(x) ** 3)
                weighted = tf.reduce_sum(inner.gradient(loss, x) * weights)
            return outer.gradient(weighted, x)

        np.testing.assert_allclose(twice(tf.constant(mine)), second * weights, 1e-12, err_msg=name)


def test_gradients_of_gradients(run_ranks) -> None:
    run_ranks(3, ranks_differentiate_twice)


def ranks_call_twice() -> None:
    """Two calls of one function, and of two, from one that is not compiled."""
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    summed = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))
    gathered = compiled(hvd.allgather)

    @tf.function
    def several(x: tf.Tensor) -> tuple[Any, ...]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            once, again = summed(x), summed(10 * x)
            loss = tf.reduce_sum(once * again)
        return once, again, gathered(x), gathered(-x), tape.gradient(loss, x)

    mine = np.full(1000, 1.0 + rank)
    total, rows = sum(range(1, size + 1)), np.concatenate([np.full(1000, 1.0 + r) for r in range(size)])
    for _ in range(5):
        once, again, forward, back, gradient = several(tf.constant(mine))
        np.testing.assert_array_equal(once, np.full(1000, total))
        np.testing.assert_array_equal(again, np.full(1000, 10 * total))
        np.testing.assert_array_equal(forward, rows)
        np.testing.assert_array_equal(back, -rows)
        np.testing.assert_array_equal(gradient, np.full(1000, 20 * total * size))


def test_calls_from_a_function_that_is_not_compiled_have_an_order(run_ranks) -> None:
    run_ranks(3, ranks_call_twice)


def ranks_bring_other_rows() -> list[str]:
    """Of rank 0 as many as fit by chance, in all."""
    hvd.init()
    texts = []
    for operation, rows in ((hvd.allgather, 2), (hvd.alltoall, 6)):
        unit = rows // 2
        with pytest.raises(tf.errors.FailedPreconditionError) as caught:
            compiled(operation)(tf.ones((rows + unit * (0, 1, -1)[hvd.rank()], 2)))
        texts.append(caught.value.message.splitlines()[0])
        assert compiled(operation)(tf.ones((6, 2))).shape[0] in (6, 18)
    with pytest.raises(tf.errors.FailedPreconditionError, match="2, 2, 3 rows"):
        compiled(hvd.grouped_allgather)([tf.ones(4), tf.ones(2 + (hvd.rank() == 2))])
    return texts


def test_every_rank_is_told_that_rows_differ(run_ranks) -> None:
    first, *others = run_ranks(3, ranks_bring_other_rows)
    assert all(other == first for other in others)
    assert "2, 3, 1 rows" in first[0] and "6, 9, 3 rows" in first[1], first


def ranks_make_mistakes() -> None:
    hvd.init()
    for wrong, text in (
        (lambda x: hvd.alltoall(x, splits=[1, 2]), "takes no splits"),
        (hvd.alltoall, "3 rows equally among 2"),
        (lambda x: hvd.allgather(tf.reduce_sum(x)), "a scalar has none"),
        (lambda x: hvd.allreduce(tf.boolean_mask(x, x > 0)), "which must be known"),
        (lambda x: hvd.barrier(), "cannot be part of"),
    ):
        with pytest.raises(ValueError, match=text):
            compiled(wrong)(tf.ones(3))


def test_mistakes_are_told_when_a_function_is_traced(run_ranks) -> None:
    run_ranks(2, ranks_make_mistakes)
