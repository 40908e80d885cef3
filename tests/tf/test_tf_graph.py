"""Collectives in a ``tf.function``: hundreds at once in any order, none left out, none done in advance."""

import random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version

import horovod.tensorflow as hvd
from horovod.tensorflow.compiled import OLDEST

COLLECTIVES = 300
ROWS = 3  # of every tensor
# What a graph may hold beside TensorFlow's own operations.
OURS = {
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "HorovodBarrier",
    "HorovodJoin",
    "HorovodRank",
}
KINDS = ["allreduce", "max", "allgather", "broadcast", "alltoall", "reducescatter"]


def collective(number: int, tensor: tf.Tensor) -> tf.Tensor:
    """Under a name that is equal on all ranks, whenever it is traced."""
    kind, name = KINDS[number % len(KINDS)], f"collective_{number}"
    if kind == "allreduce":
        return hvd.allreduce(tensor, op=hvd.Sum, name=name)
    if kind == "max":
        return hvd.allreduce(tensor, op=hvd.Max, name=name)
    if kind == "allgather":
        return hvd.allgather(tensor, name=name)
    if kind == "broadcast":
        return hvd.broadcast(tensor, root_rank=number % hvd.size(), name=name)
    if kind == "alltoall":
        return hvd.alltoall(tensor[: hvd.size()], name=name)
    return hvd.reducescatter(tensor, op=hvd.Sum, name=name)


def value(number: int, run: int, rank: int) -> float:
    """Of all elements of a tensor of a rank; an integer, so that sums are exact."""
    return float(number * 7 + run * 3 + (rank + 1) * 1000)


def expected(number: int, run: int, rank: int, size: int) -> np.ndarray:
    values = [value(number, run, other) for other in range(size)]
    kind = KINDS[number % len(KINDS)]
    rows = {
        "allreduce": [sum(values)] * ROWS,
        "max": [max(values)] * ROWS,
        "allgather": np.repeat(values, ROWS),
        "broadcast": [values[number % size]] * ROWS,
        "alltoall": values,
        "reducescatter": [sum(values)] * len(range(ROWS)[rank::size]),
    }
    return np.array(rows[kind], np.float32)


def busy(steps: tf.Tensor) -> tf.Tensor:
    """Work of a length that is known only when it runs."""
    matrix = tf.eye(8)
    return tf.while_loop(
        lambda step, _: step < steps,
        lambda step, product: (step + 1, tf.linalg.matmul(product, matrix)),
        [tf.constant(0), matrix],
        parallel_iterations=1,
    )[1]


def in_own_order(order: random.Random) -> Any:
    """A function of all collectives, whose inputs are ready in an order of this rank: every input waits for
    the one before it, and every tenth for work of a length that each call says anew.
    """
    sequence = list(range(COLLECTIVES))
    order.shuffle(sequence)

    @tf.function(autograph=False)
    def many(inputs: tf.Tensor, delays: tf.Tensor) -> list[tf.Tensor]:
        results: list[Any] = [None] * COLLECTIVES
        before: list[tf.Tensor] = []
        for place, number in enumerate(sequence):
            if place % 10 == 0:
                before.append(busy(delays[place // 10]))
            with tf.control_dependencies(before):
                ready = tf.identity(inputs[number])
            before = [ready]
            results[number] = collective(number, ready)
        return results

    return many


def ranks_run_many(runs: int) -> float:
    """Returns the sum of all that was received, which must be right in every run."""
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    rank, size, order = hvd.rank(), hvd.size(), random.Random(f"own {hvd.rank()}")
    many, total = in_own_order(order), 0.0
    for run in range(runs):
        mine = np.array([[value(n, run, rank)] * ROWS for n in range(COLLECTIVES)], np.float32)
        delays = [order.choice([0, 0, 1, 5, 25]) for _ in range(COLLECTIVES // 10)]
        for number, result in enumerate(many(tf.constant(mine), tf.constant(delays))):
            wanted = expected(number, run, rank, size)
            assert np.array_equal(result.numpy(), wanted), f"run {run}, {number}: {result} != {wanted}"
            total += float(wanted.sum())
    assert many.experimental_get_tracing_count() == 1
    return total


@pytest.mark.parametrize(("ranks", "runs"), [(3, 40), pytest.param(2, 200, marks=pytest.mark.full)])
def test_three_hundred_in_different_orders(run_ranks, ranks: int, runs: int) -> None:
    assert all(total > 0 for total in run_ranks(ranks, ranks_run_many, [runs], timeout=110))


def op_types(function: Any) -> set[str]:
    """Of the graph of a traced function, and of all functions that it calls."""
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return {node.op for node in nodes}


def ranks_list_op_types() -> list[str]:
    """Of everything at once, with gradients."""
    hvd.init()

    @tf.function
    def everything(tensor: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            results = [
                hvd.allreduce(tensor),
                *hvd.grouped_allreduce([tensor, tensor]),
                hvd.allgather(tensor),
                *hvd.grouped_allgather([tensor, tensor]),
                hvd.broadcast(tensor, root_rank=0),
                hvd.alltoall(tensor),
                hvd.reducescatter(tensor),
                *hvd.grouped_reducescatter([tensor, tensor]),
            ]
            loss = tf.add_n([tf.reduce_sum(result) for result in results])
        gradient = tape.gradient(loss, tensor)
        hvd.barrier()
        return [gradient, tf.cast(hvd.join(), tf.float32)]

    types = op_types(everything.get_concrete_function(tf.ones((4,))))
    gradient, last = everything(tf.ones((4,)))
    assert gradient.shape == (4,) and 0 <= last < hvd.size()
    return sorted(types)


def test_only_our_operations_and_those_of_tensorflow(run_ranks) -> None:
    for types in run_ranks(2, ranks_list_op_types):
        assert not [name for name in types if "PyFunc" in name or "Numpy" in name]
        assert {name for name in types if name.startswith("Horovod")} == OURS
        others = [name for name in types if not name.startswith("Horovod")]
        assert all(hasattr(tf.raw_ops, name) for name in others), others


def rank_drops_a_result() -> list[float]:
    """Rank 1 does not look at what it gets, and rank 0 gets it all the same."""
    hvd.init()

    @tf.function
    def step(tensor: tf.Tensor) -> tf.Tensor:
        total = hvd.allreduce(tensor, op=hvd.Sum, name="dropped")
        return total if hvd.rank() == 0 else tensor

    return [step(tf.constant(float(run))).numpy().item() for run in range(3)]


def test_an_unused_result_is_computed(run_ranks) -> None:
    assert run_ranks(2, rank_drops_a_result) == [[0.0, 2.0, 4.0], [0.0, 1.0, 2.0]]


def rank_reduces_a_constant() -> None:
    """Rank 0 gives a constant and a variable that it does not change, rank 1 something new in every call."""
    hvd.init()
    variable = tf.Variable(10.0, trainable=False)

    @tf.function
    def step(tensor: tf.Tensor) -> tf.Tensor:
        mine = [tf.constant(1.0), variable] if hvd.rank() == 0 else [tensor, tensor]
        named = zip(mine, ["constant", "variable"], strict=True)
        return tf.stack([hvd.allreduce(each, op=hvd.Sum, name=name) for each, name in named])

    results = [step(tf.constant(float(run))).numpy().tolist() for run in range(3)]
    assert results == [[1.0, 10.0], [2.0, 11.0], [3.0, 12.0]]

    @tf.function
    def twice() -> tf.Tensor:  # equal operations, which must not become one
        return tf.stack([hvd.allreduce(tf.constant(2.0), op=hvd.Sum) for _ in range(2)])

    before = hvd.counters()["tensors"]
    for _ in range(3):
        assert twice().numpy().tolist() == [4.0, 4.0]
    assert hvd.counters()["tensors"] - before == 6


def test_a_constant_is_reduced_in_every_call(run_ranks) -> None:
    run_ranks(2, rank_reduces_a_constant)


def rank_joins_early() -> list[float]:
    """Rank 1 has joined while the others run a function; all are told who was last."""
    hvd.init()

    @tf.function
    def step(tensor: tf.Tensor) -> list[tf.Tensor]:
        return [
            hvd.allreduce(tensor, op=hvd.Sum),
            hvd.allgather(tensor)[-1],
            hvd.reducescatter(tensor, op=hvd.Sum)[0],
        ]

    results: list[float] = []
    if hvd.rank() != 1:
        parts = step(tf.fill((3,), float(hvd.rank() + 1)))
        results = [float(tf.reduce_max(part)) for part in parts]
    assert hvd.join().numpy() != 1
    return results


def test_functions_while_a_rank_has_joined(run_ranks) -> None:
    results = run_ranks(3, rank_joins_early)
    assert results == [[4.0, 3.0, 4.0], [], [4.0, 3.0, 4.0]]


def rank_runs_collectives_in_control_flow() -> None:
    """In branches, in loops of a length that is known only when they run, and in functions of functions."""
    hvd.init()

    @tf.function
    def inner(tensor: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(tensor, op=hvd.Sum)

    @tf.function
    def outer(tensor: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(steps):
            tensor = hvd.allreduce(tensor, op=hvd.Average) + 1.0
        if tf.reduce_sum(tensor) > 0:
            tensor = inner(tensor)
        else:
            tensor = hvd.allreduce(tensor, op=hvd.Max)
        return inner(tensor)

    for steps in (0, 3, 5):
        result = outer(tf.ones((2,)), tf.constant(steps))
        assert result.numpy().tolist() == [(1.0 + steps) * hvd.size() ** 2] * 2


def test_control_flow(run_ranks) -> None:
    run_ranks(2, rank_runs_collectives_in_control_flow)


def test_what_xla_cannot_call_is_refused_with_the_remedy() -> None:
    hvd.init()
    refused = {"cannot be part": lambda _: hvd.barrier()}
    if Version(tf.__version__) < Version(OLDEST):
        refused[f"from TensorFlow {OLDEST} on"] = hvd.allreduce
    for text, operation in refused.items():
        compiled = tf.function(operation, jit_compile=True)
        with pytest.raises(ValueError, match=f"{text}.*Leave jit_compile=True away"):
            compiled(tf.ones(3))
    inner = tf.function(lambda x: x * 2, jit_compile=True)
    assert tf.function(lambda x: hvd.allreduce(inner(x)))(tf.ones(1)).numpy() == [2.0]
