"""Collectives in functions that XLA compiles, against numpy and against the same function without XLA."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import check_compiled  # noqa: F401  # skips
import numpy as np
import pytest
import tensorflow as tf
from launch import interrupted
from load import within
from reference import differs
from tensorflow_glue import TYPES, array, tensor

import horovod.tensorflow as hvd

OPS = {"Sum": hvd.Sum, "Average": hvd.Average, "Min": hvd.Min, "Max": hvd.Max, "Product": hvd.Product}
SECONDS_UNTIL_NAMED = 2.0


def compiled(function: Any) -> Any:
    return tf.function(function, jit_compile=True, autograph=False)


def ranks_reduce() -> None:
    """The same bits as outside, of every type and reduction, alone and in groups, also on a process set."""
    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    given = np.random.default_rng(hvd.rank()).integers(1, 4, (3, 5))
    for dtype in TYPES:
        mine = tensor(given, dtype)
        ops = {name: op for name, op in OPS.items() if (dtype, name) != ("bool", "Average")}

        def reduce(x: Any, ops: dict[str, int] = ops, dtype: str = dtype) -> list[Any]:
            results = [hvd.allreduce(x, op=op, name=f"{dtype}.{name}") for name, op in ops.items()]
            results += hvd.grouped_allreduce([x, x[:1], x[:0]], op=hvd.Max, name=f"{dtype}.group")
            results.append(hvd.broadcast(x, 1, name=f"{dtype}.broadcast"))
            results.append(hvd.allgather(x, name=f"{dtype}.rows"))
            if pair.included():
                results.append(hvd.allreduce(x, op=hvd.Min, name=f"{dtype}.pair", process_set=pair))
            return results

        for inside, outside in zip(compiled(reduce)(mine), reduce(mine), strict=True):
            assert inside.dtype == outside.dtype
            assert not differs(array(inside), array(outside), dtype)
    scaled = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.1, postscale_factor=3.0))
    total = sum(np.random.default_rng(rank).integers(1, 4, (3, 5)) for rank in range(hvd.size()))
    np.testing.assert_allclose(scaled(tensor(given, "float64")), total * 0.3, rtol=1e-15)


# What XLA compiles does not know by which way tensors go.
@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=pytest.mark.full)])
def test_reductions_and_broadcasts(run_ranks, transport: str) -> None:
    run_ranks(3, ranks_reduce, env={"HOROVOD_TRANSPORT": transport}, timeout=100)


def ranks_train() -> list[list[float]]:
    hvd.init()
    rng = np.random.default_rng(hvd.rank())
    x, y = tf.constant(rng.normal(size=(8, 3))), tf.constant(rng.normal(size=(8, 1)))
    results = []
    for jit in (True, False):
        weights = [tf.Variable(np.full((3, 4), 0.5)), tf.Variable(np.full((4, 1), 0.5))]

        @tf.function(jit_compile=jit)
        def step(steps: int, weights: Any = weights) -> None:
            for _ in range(steps):
                with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                    loss = tf.reduce_mean((tf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
                for variable, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                    variable.assign_sub(0.1 * gradient)

        for _ in range(3):
            step(2)
        results.append([float(value) for variable in weights for value in tf.reshape(variable, [-1])])
    return results


def test_training(run_ranks) -> None:
    first, *others = run_ranks(2, ranks_train)
    assert all(other == first for other in others)
    np.testing.assert_allclose(first[0], first[1], rtol=1e-12)


def ranks_differentiate() -> None:
    hvd.init()
    mine = tf.constant(np.arange(4.0) + hvd.rank())

    @compiled
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 2)
        return tape.gradient(loss, x)

    total = sum(np.arange(4.0) + rank for rank in range(hvd.size()))
    np.testing.assert_allclose(gradient(mine), 2 * total * hvd.size())

    @compiled
    def looped(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, hvd.allreduce(y) + 1.0), (0, x))[1]

    np.testing.assert_allclose(looped(mine), total / hvd.size() + 3.0)


def test_gradients_and_loops(run_ranks) -> None:
    run_ranks(2, ranks_differentiate)


def ranks_disagree() -> str:
    hvd.init()
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        compiled(lambda x: hvd.allreduce(x, name="one"))(tf.ones(3 + hvd.rank()))
    assert compiled(lambda x: hvd.allreduce(x, name="two"))(tf.ones(2)).numpy().tolist() == [1.0, 1.0]
    return caught.value.message.splitlines()[0]


def test_ranks_that_disagree_get_one_text(run_ranks) -> None:
    first, second = run_ranks(2, ranks_disagree)
    assert "rank 0 sent [3], rank 1 sent [4]" in first and "rank 0 sent [3], rank 1 sent [4]" in second


def rank_dies(folder: str) -> tuple[float, str]:
    hvd.init()
    step = compiled(lambda x: hvd.allreduce(x))
    step(tf.ones(1000))
    if hvd.rank() == 1:
        time.sleep(0.5)  # until the others have their results of the step before
        (Path(folder) / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tf.errors.UnknownError) as caught:
        step(tf.ones(1000))
    return time.time(), caught.value.message


def test_a_rank_that_is_killed_is_named(run_ranks, tmp_path) -> None:
    results = run_ranks(3, rank_dies, [str(tmp_path)], dies=[1], finalize=True)
    killed = float((tmp_path / "killed").read_text())
    for seen, text in (results[0], results[2]):
        assert "rank 1" in text and "died" in text, text
        assert seen - killed < within(SECONDS_UNTIL_NAMED), text


WAITS = """
import time
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
step = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
step(tf.ones(4))
print("ready", flush=True)
if hvd.rank() == 1:
    time.sleep(600)
step(tf.ones(4))
"""


def test_ctrl_c_ends_a_compiled_step(tmp_path: Path) -> None:
    done = interrupted(WAITS, tmp_path / "program.py", 15)
    assert done.returncode == 130, done.output


def ranks_train_in_an_elastic_job() -> list[float]:
    """Without XLA first, so that the comparison of the first step is over, then with it."""
    hvd.init()
    variable = tf.Variable([1.0, 2.0])

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable) * (1.0 + hvd.rank())
        variable.assign_sub(0.1 * hvd.DistributedGradientTape(tape).gradient(loss, [variable])[0])

    for function in (tf.function(step), compiled(step)):
        for _ in range(2):
            function()
    return variable.numpy().tolist()


def test_a_training_of_an_elastic_job(run_ranks) -> None:
    found = run_ranks(2, ranks_train_in_an_elastic_job, env={"HOROVOD_ELASTIC": "1"}, timeout=100)
    assert found[0] == found[1]
    assert np.allclose(found[0], [0.7**4, 2 * 0.7**4])
