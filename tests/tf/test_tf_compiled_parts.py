"""Gradients in functions that XLA compiles, between hosts: they start in parts as soon as they are computed,
and travel while the function goes on.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import check_compiled  # noqa: F401  # skips
import numpy as np
import pytest
import tensorflow as tf
from timelines import part_times

import horovod.tensorflow as hvd
from horovod.xla import parts

SIZES = (3, 40, 0, 7, 20)
LAYERS, WIDTH, BATCH, STEPS = 161, 64, 512, 40


def compiled(function: Any) -> Any:
    return tf.function(function, jit_compile=True, autograph=False)


def numbers(rank: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=shape)


def ranks_use_parts() -> None:
    """In loops, one behind the other, differentiated; as outside, to the bit."""
    hvd.init()
    parts.LEAST_BYTES = 100
    mine = [tf.constant(numbers(hvd.rank(), each)) for each in SIZES]
    reduce = compiled(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum, name="reduced"))
    outside = hvd.grouped_allreduce(mine, op=hvd.Sum, name="outside")
    for _ in range(3):
        for inside, expected in zip(reduce(*mine), outside, strict=True):
            np.testing.assert_array_equal(inside, expected)

    @compiled
    def chain(*xs: Any) -> Any:
        for number in range(3):
            xs = hvd.grouped_allreduce(list(xs), op=hvd.Average, name=f"chain.{number}")
        return xs

    for inside, total in zip(chain(*mine), outside, strict=True):
        np.testing.assert_allclose(inside, total / hvd.size(), 1e-12)

    @compiled
    def gradients(*xs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(xs)
            loss = sum(tf.reduce_sum(x**2) for x in hvd.grouped_allreduce(list(xs), op=hvd.Sum, name="loss"))
        return tape.gradient(loss, xs)

    for gradient, total in zip(gradients(*mine), outside, strict=True):
        np.testing.assert_allclose(gradient, 2 * total * hvd.size(), 1e-12)

    with pytest.raises(tf.errors.OpError, match=r"rank 0 sent \[40\]"):
        reduce(*mine[:1], tf.zeros(40 - hvd.rank(), tf.float64), *mine[2:])
    np.testing.assert_array_equal(reduce(*mine)[1], outside[1])

    # Nothing orders two calls of one function within a compiled one: no call may get the other's results.
    twice = compiled(lambda *xs: (reduce(*xs), reduce(*(-x for x in xs))))
    for _ in range(3):
        try:
            first, second = twice(*mine)
        except tf.errors.OpError as error:
            assert "give each operation a name of its own" in str(error)  # or XLA has ordered them
        else:
            np.testing.assert_array_equal(first[1], outside[1])
            np.testing.assert_array_equal(second[1], -outside[1])
    np.testing.assert_array_equal(reduce(*mine)[1], outside[1])


@pytest.mark.parametrize("hosts", [[0, 1], [0, 0, 1]])
def test_parts_are_the_whole(run_ranks, hosts: list[int]) -> None:
    run_ranks(len(hosts), ranks_use_parts, hosts=hosts)


def ranks_come_to_several_hosts() -> None:
    """An elastic job grows: a function that was compiled before and one of a rank that is new."""
    hvd.init()
    parts.LEAST_BYTES = 100
    mine = [tf.constant(numbers(hvd.rank(), each)) for each in SIZES]

    def reduce() -> Any:
        return compiled(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum, name="reduced"))

    step = reduce()
    before = step(*mine)
    hvd.shutdown()
    os.environ |= {"HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1", "HOROVOD_CROSS_SIZE": "2"}
    os.environ |= {"HOROVOD_CROSS_RANK": os.environ["HOROVOD_RANK"]}
    os.environ |= {"HOROVOD_HOSTNAME": f"node{os.environ['HOROVOD_RANK']}"}
    hvd.init()
    assert hvd.local_size() == 1
    for inside, expected in zip((step if hvd.rank() == 0 else reduce())(*mine), before, strict=True):
        np.testing.assert_array_equal(inside, expected)


def test_ranks_that_compile_before_and_after_a_host_came(run_ranks) -> None:
    run_ranks(2, ranks_come_to_several_hosts, hosts=[0, 0], env={"HOROVOD_ELASTIC": "1"}, timeout=60)


def ranks_train() -> str:
    hvd.init()
    parts.LEAST_BYTES = 10 * 4 * WIDTH * WIDTH
    weights = [
        tf.Variable(numbers(layer, WIDTH, WIDTH) / WIDTH**0.5, dtype="float32") for layer in range(LAYERS)
    ]
    x = tf.constant(numbers(hvd.rank(), BATCH, WIDTH), "float32")

    @compiled
    def step() -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            y = x
            for weight in weights:
                y = tf.tanh(y @ weight)
            loss = tf.reduce_mean(y**2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    losses = [float(step()) for _ in range(STEPS)]
    assert losses[-1] < losses[0]
    return hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest()


def test_the_first_gradients_travel_while_the_last_are_computed(run_ranks, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    first, second = run_ranks(2, ranks_train, hosts=[0, 1], env={"HOROVOD_TIMELINE": str(path)}, timeout=100)
    assert first == second
    submitted, travels = part_times(json.loads(path.read_text()))
    assert len(submitted) == LAYERS // 10 + 1
    first_travels = [min(times[step] for times in travels.values()) for step in range(STEPS)]
    last_submitted = [max(times[step] for times in submitted.values()) for step in range(STEPS)]
    overlapped = sum(early < late for early, late in zip(first_travels, last_submitted, strict=True))
    # A rank that gets no CPU during the other's backward pass leaves nothing to overlap with:
    # on a busy machine that may be most of the steps.
    assert overlapped >= 3, f"{overlapped} of {STEPS} steps"
