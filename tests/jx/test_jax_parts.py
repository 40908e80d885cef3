"""An allreduce of several arrays in a compiled function, between hosts: its parts start as soon as they are
computed, and travel while the function goes on.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import check_jax  # noqa: F401  # skips
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_glue import JaxRunning, is_even, run_compiled
from load import within
from matrix import check_digests, run_table
from timelines import part_times

import horovod.jax as hvd
from horovod.xla import parts

LAYERS, WIDTH, BATCH, STEPS = 161, 64, 512, 40
SECONDS_UNTIL_NAMED = 2.0


def numbers(rank: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=shape)


def started(function: Any, *arguments: Any) -> int:
    """How many parts a compiled function starts."""
    return jax.jit(function).lower(*arguments).as_text().count("@horovod_start(")


def ranks_matrix() -> dict[str, str]:
    parts.LEAST_BYTES = 1

    def run(_: int, cases: Any, order: Any) -> list[JaxRunning]:
        grouped = [case for case in cases if case.kind == "grouped_allreduce"]
        window = list(filter(is_even, map(JaxRunning, grouped)))
        run_compiled(window)
        return window

    return run_table(hvd, 1, run)


@pytest.mark.parametrize("hosts", [[0, 1], [0, 0, 1]])
def test_every_type_and_reduction(run_ranks, hosts: list[int]) -> None:
    check_digests(run_ranks(len(hosts), ranks_matrix, hosts=hosts, timeout=110))


def ranks_use_programs() -> None:
    """In loops, one behind the other, mapped, differentiated; of other sizes; as outside, to the bit."""
    hvd.init()
    parts.LEAST_BYTES = 100
    size = hvd.size()
    mine = [numbers(hvd.rank(), each) for each in (3, 40, 0, 7, 20)]
    totals = [sum(numbers(rank, each) for rank in range(size)) for each in (3, 40, 0, 7, 20)]

    def summed(tree: Any) -> Any:
        return hvd.allreduce(tree, op=hvd.Sum)

    assert started(summed, mine) == 3
    assert started(summed, mine[:1]) == 0 and started(hvd.allgather, mine) == 0
    for found, outside, total in zip(jax.jit(summed)(mine), summed(mine), totals, strict=True):
        np.testing.assert_array_equal(found, outside)
        np.testing.assert_allclose(found, total, rtol=1e-12)

    def twice(tree: Any) -> Any:
        first, second = summed(tree), hvd.allreduce([-each for each in tree], name="second")
        return first, second, hvd.broadcast(first[0], 0)

    first, second, third = jax.jit(twice)(mine)
    for found, total in zip(first, totals, strict=True):
        np.testing.assert_allclose(found, total, rtol=1e-12)
    for found, total in zip(second, totals, strict=True):
        np.testing.assert_allclose(found, -total / size, rtol=1e-12)
    np.testing.assert_array_equal(third, first[0])

    def looped(tree: Any) -> Any:
        step = lambda carried, _: ([each / size for each in summed(carried)], 0)  # noqa: E731
        return jax.lax.scan(step, tree, None, length=4)[0]

    for found, total in zip(jax.jit(looped)(mine), totals, strict=True):
        np.testing.assert_allclose(found, total / size, rtol=1e-12)
    mapped = jax.jit(jax.vmap(summed))([np.stack([each, -each]) for each in mine])
    for found, total in zip(mapped, totals, strict=True):
        np.testing.assert_allclose(found, np.stack([total, -total]), rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda tree: sum((each**2).sum() for each in summed(tree))))(mine)
    for found, total in zip(gradient, totals, strict=True):
        np.testing.assert_allclose(found, 2 * total * size, rtol=1e-12)


def test_programs(run_ranks) -> None:
    run_ranks(3, ranks_use_programs, hosts=[0, 1, 2])


def ranks_stay_within_a_host() -> None:
    hvd.init()
    parts.LEAST_BYTES = 1
    assert started(hvd.allreduce, [np.ones(3), np.ones(4)]) == 0


def test_within_a_host_all_travels_at_once(run_ranks) -> None:
    run_ranks(2, ranks_stay_within_a_host)


def slowly(x: np.ndarray) -> np.ndarray:
    time.sleep(0.5)
    return x


def ranks_fail_between_start_and_end() -> None:
    """XLA frees what was started; the next call of the function finds nothing of it, also on a rank that is
    told only when it reads the result, as its input is late.
    """
    hvd.init()
    parts.LEAST_BYTES = 1
    fails = True

    def checked(x: Any) -> Any:
        if fails:
            raise RuntimeError("of the program's own")
        return x

    @jax.jit
    def step(x: Any, y: Any) -> Any:
        late = jax.pure_callback(checked, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
        return hvd.allreduce([late, x], op=hvd.Sum)

    x, y = np.full(100_000, 1.0 + hvd.rank()), np.ones(3)
    if hvd.rank() > 0:
        y = jax.jit(lambda: jax.pure_callback(slowly, jax.ShapeDtypeStruct(y.shape, y.dtype), y))()
    with pytest.raises(Exception, match="of the program's own"):
        jax.block_until_ready(step(x, y))
    fails = False
    for _ in range(3):
        late, total = step(x, y)
        np.testing.assert_array_equal(late, [hvd.size()] * 3)
        np.testing.assert_array_equal(total, np.full(100_000, sum(range(1, hvd.size() + 1))))


def test_a_program_that_fails_in_between(run_ranks) -> None:
    run_ranks(2, ranks_fail_between_start_and_end, hosts=[0, 1])


def ranks_fail_then_start_in_another_order() -> None:
    """Of the function that failed, the last part was started; that behind it starts its last one last."""
    hvd.init()
    parts.LEAST_BYTES = 1
    fails = True

    def late(x: Any) -> Any:
        time.sleep(0.2)
        if fails:
            raise RuntimeError("of the program's own")
        return x

    def after_a_while(x: Any) -> Any:
        return jax.pure_callback(late, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x, y = np.full(100_000, 1.0 + hvd.rank()), np.ones(3)
    with pytest.raises(Exception, match="of the program's own"):
        jax.block_until_ready(jax.jit(lambda x, y: hvd.allreduce([after_a_while(y), x]))(x, y))
    fails = False
    step = jax.jit(lambda x, y: hvd.allreduce([x, after_a_while(y)], op=hvd.Sum))
    for _ in range(3):
        total, last = step(x, y)
        np.testing.assert_array_equal(total, np.full(100_000, sum(range(1, hvd.size() + 1))))
        np.testing.assert_array_equal(last, [hvd.size()] * 3)


def test_parts_in_another_order_behind_a_program_that_failed(run_ranks) -> None:
    run_ranks(2, ranks_fail_then_start_in_another_order, hosts=[0, 1])


def ranks_disagree() -> str:
    hvd.init()
    parts.LEAST_BYTES = 1
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(jax.jit(hvd.allreduce)([np.ones(3), np.ones(4 + hvd.rank()), np.ones(5)]))
    np.testing.assert_array_equal(jax.jit(hvd.allreduce)([np.ones(3), np.ones(4)])[1], np.ones(4))
    return str(caught.value)


def test_ranks_that_disagree_get_one_text(run_ranks) -> None:
    first, second = run_ranks(2, ranks_disagree, hosts=[0, 1])
    assert first == second
    assert "rank 0 sent [4]" in first and "rank 1 sent [5]" in first, first


def ranks_go_on_after_a_mismatch() -> None:
    """The other parts of a step that has failed may still travel: the next one of its name waits for them."""
    hvd.init()
    parts.LEAST_BYTES = 1
    step = jax.jit(lambda xs: hvd.allreduce(xs, op=hvd.Sum, name="step"))
    given = [np.full(each, 1.0) for each in (300_000, 4, 500_000)]
    for _ in range(10):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"rank 0 sent \[4\]"):
            jax.block_until_ready(step([given[0], np.ones(4 + hvd.rank()), given[2]]))
        for result, mine in zip(step(given), given, strict=True):
            np.testing.assert_array_equal(result, hvd.size() * mine)


def test_what_comes_behind_a_step_that_failed(run_ranks) -> None:
    run_ranks(2, ranks_go_on_after_a_mismatch, hosts=[0, 1])


def rank_dies(folder: str) -> tuple[float, str]:
    hvd.init()
    parts.LEAST_BYTES = 1
    step = jax.jit(hvd.allreduce)
    jax.block_until_ready(step([np.ones(3), np.ones(4)]))
    if hvd.rank() == 1:
        time.sleep(0.5)  # until the others have their results of the step before
        (Path(folder) / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with hvd.elastic.internal_errors():
            jax.block_until_ready(step([np.ones(3), np.ones(4)]))
    except hvd.HorovodInternalError as error:
        return time.time(), str(error)
    return 0.0, "no error"


def test_a_rank_that_is_killed_is_named(run_ranks, tmp_path) -> None:
    results = run_ranks(3, rank_dies, [str(tmp_path)], hosts=[0, 1, 2], dies=[1], finalize=True)
    killed = float((tmp_path / "killed").read_text())
    for seen, text in (results[0], results[2]):
        assert "rank 1" in text and "died" in text, text
        assert seen - killed < within(SECONDS_UNTIL_NAMED), text


def ranks_train() -> int:
    hvd.init()
    parts.LEAST_BYTES = 10 * 4 * WIDTH * WIDTH

    def loss(weights: list[Any], x: Any) -> Any:
        for each in weights:
            x = jnp.tanh(x @ each)
        return (x**2).mean()

    def step(weights: list[Any], x: Any) -> list[Any]:
        gradients = hvd.allreduce(jax.grad(loss)(weights, x))
        return [each - 0.01 * gradient for each, gradient in zip(weights, gradients, strict=True)]

    weights = [jnp.asarray(numbers(layer, WIDTH, WIDTH) / WIDTH**0.5, "float32") for layer in range(LAYERS)]
    x, compiled = jnp.asarray(numbers(hvd.rank(), BATCH, WIDTH), "float32"), jax.jit(step)
    for _ in range(STEPS):
        weights = jax.block_until_ready(compiled(weights, x))
    return started(step, weights, x)


def test_the_first_gradients_travel_while_the_last_are_computed(run_ranks, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    count, _ = run_ranks(2, ranks_train, hosts=[0, 1], env={"HOROVOD_TIMELINE": str(path)}, timeout=100)
    submitted, travels = part_times(json.loads(path.read_text()))
    assert len(submitted) == count == 17
    first = [min(times[step] for times in travels.values()) for step in range(STEPS)]
    last = [max(times[step] for times in submitted.values()) for step in range(STEPS)]
    overlapped = sum(early < late for early, late in zip(first, last, strict=True))
    # A rank that gets no CPU during the other's backward pass leaves nothing to overlap with:
    # on a busy machine that may be most of the steps.
    assert overlapped >= 3, f"{overlapped} of {STEPS} steps"
