"""Before the first step the ranks compare what they reduce and how; a difference is one error everywhere."""

import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras


def step_of(in_graph=False, columns=2, frozen=False, **options):
    """A step: the gradients of two variables, of which the second has ``columns`` columns or is frozen, by
    a tape with the other options.
    """
    first = tf.Variable(tf.ones((3, 2)), name="first")
    second = tf.Variable(tf.ones((2, columns)), name="second")

    def step():
        with tf.GradientTape() as plain:
            loss = tf.reduce_sum(first @ second)
        sources = [first] if frozen else [first, second]
        return hvd.DistributedGradientTape(plain, **options).gradient(loss, sources)

    return tf.function(step) if in_graph else step


def ranks_differ(mine, in_graph):
    """``mine``: the options of each rank. Returns the error; then both take the same step."""
    hvd.init()
    with pytest.raises(hvd.TensorMismatchError) as caught:
        step_of(in_graph, **mine[hvd.rank()])()
    assert [gradient.shape for gradient in step_of(in_graph)()] == [(3, 2), (2, 2)]
    return str(caught.value)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"op": hvd.Sum}, "op (rank 0: Average; rank 1: Sum)"),
        ({"columns": 5}, "variable 1 'second' (rank 0: float32 (2, 2); rank 1: float32 (2, 5))"),
        ({"frozen": True}, "variable 1 'second' (rank 0: float32 (2, 2); rank 1: nothing)"),
        ({"groups": 2}, "groups (rank 0: None; rank 1: 2)"),
    ],
)
def test_tapes_that_differ(run_ranks, other, said, in_graph):
    texts = run_ranks(2, ranks_differ, [[{}, other], in_graph])
    assert texts[0] == texts[1]
    assert "DistributedGradientTape" in texts[0] and said in texts[0]


def ranks_compare_once():
    """One operation more in each of the first two steps, where the ranks compare what they reduce and what
    has come of it, and none later, whatever each rank has kept or dropped.
    """
    hvd.init()
    kept = []
    counts = []
    for step in range(4):
        before = hvd.counters()["tensors"]
        gradients = step_of()()
        if hvd.rank() == step % 2:
            kept.append(gradients)
        counts.append(hvd.counters()["tensors"] - before)
    return counts


def test_they_are_compared_once(run_ranks):
    for counts in run_ranks(2, ranks_compare_once):
        assert counts == [*[counts[3] + 1] * 2, *[counts[3]] * 2]


def ranks_wrap_differently(run_eagerly):
    """Optimizers of Keras; and of tf.compat.v1."""
    hvd.init()
    keras.utils.set_random_seed(0)
    other = hvd.rank() == 1
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="a"), keras.layers.Dense(1)])
    model.get_layer("a").trainable = not other
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", run_eagerly=run_eagerly)
    texts = []
    with pytest.raises(hvd.TensorMismatchError) as caught:
        model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    texts.append(str(caught.value))
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=1 + other
    )
    variable = tf.Variable(1.0, name="x")
    with pytest.raises(hvd.TensorMismatchError) as caught:
        for _ in range(2):
            optimizer.compute_gradients(lambda: variable**2, [variable])
    return [*texts, str(caught.value)]


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_optimizers_that_differ(run_ranks, run_eagerly):
    texts, others = run_ranks(2, ranks_wrap_differently, [run_eagerly], timeout=120)
    assert texts == others
    assert "DistributedSGD" in texts[0] and "rank 1: nothing" in texts[0]
    assert "backward_passes_per_step (rank 0: 1; rank 1: 2)" in texts[1]


def ranks_train_in_threads(in_graph):
    """Two variables at the same time; on each rank the other one comes to its step first."""
    hvd.init()
    names = "first", "second"
    optimizers = [hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), name=name) for name in names]
    variables = [keras.Variable([float(number)]) for number in range(2)]
    for optimizer, variable in zip(optimizers, variables, strict=True):
        optimizer.build([variable])

    def train(number):
        def step():
            optimizers[number].apply([tf.constant([float(hvd.rank())])], [variables[number]])

        if number == hvd.rank():
            time.sleep(0.3)
        (tf.function(step) if in_graph else step)()

    with ThreadPoolExecutor() as pool:
        list(pool.map(train, range(2)))
    return [float(variable.numpy()[0]) for variable in variables]


@pytest.mark.parametrize("in_graph", [False, True])
def test_two_threads_train_a_variable_each(run_ranks, in_graph):
    assert run_ranks(2, ranks_train_in_threads, [in_graph]) == [[-0.5, 0.5]] * 2
