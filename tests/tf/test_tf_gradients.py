"""The gradient of every operation, eagerly and in a graph, against differences of what numpy computes.

The loss is the sum, over the ranks, of each rank's own weights times its own result. Its gradient is what an
allreduce and an alltoall have; an allgather and a broadcast have it divided by the number of ranks, and a
reducescatter times that number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference
import tensorflow as tf
from reference import AVERAGE, SUM

import horovod.tensorflow as hvd

STEP = 0.5  # of the differences, which are exact in any size: the operations are linear
FACTORS = (0.1, 3.0)  # of which a float32 holds one
Arrays = list[np.ndarray]  # one a rank


@dataclass
class Operation:
    """One to differentiate, of this rank's tensor, and what numpy says about all ranks' arrays."""

    call: Callable[[tf.Tensor], tf.Tensor]
    compute: Callable[[Arrays], Arrays]
    scale: float = 1.0  # of the gradient, in relation to that of the sum of the losses
    rows: Callable[[int], int] = lambda rank: 4


def operations(size: int) -> dict[str, Operation]:
    """All, at their places in a job of ``size`` ranks."""

    def reduced(op: int, factors: tuple[float, float] = (1.0, 1.0)) -> Callable[[Arrays], Arrays]:
        return lambda arrays: [reference.allreduce(arrays, "float64", op, *factors)] * size

    def scattered(op: int, factors: tuple[float, float] = (1.0, 1.0)) -> Callable[[Arrays], Arrays]:
        return lambda arrays: [
            reference.reducescatter(arrays, "float64", op, rank, *factors) for rank in range(size)
        ]

    def exchanged(arrays: Arrays) -> Arrays:
        splits = [[sender + 1] * size for sender in range(size)]
        return [reference.alltoall(arrays, splits, rank)[0] for rank in range(size)]

    def factors(op: int) -> dict[str, Any]:
        return {"op": op, "prescale_factor": FACTORS[0], "postscale_factor": FACTORS[1]}

    gathered = Operation(
        hvd.allgather, lambda arrays: [reference.allgather(arrays)] * size, 1 / size, lambda rank: 2 * rank
    )
    return {
        "sum": Operation(lambda t: hvd.allreduce(t, op=hvd.Sum), reduced(SUM)),
        "average": Operation(hvd.allreduce, reduced(AVERAGE)),
        "factors": Operation(lambda t: hvd.allreduce(t, **factors(SUM)), reduced(SUM, FACTORS)),
        "group": Operation(
            lambda t: tf.concat(hvd.grouped_allreduce([t[:1], t[1:]], op=hvd.Sum), 0), reduced(SUM)
        ),
        "allgather": gathered,
        "group of allgathers": Operation(
            lambda t: hvd.grouped_allgather([t, t[:1]])[0], gathered.compute, gathered.scale, gathered.rows
        ),
        "broadcast": Operation(
            lambda t: hvd.broadcast(t, root_rank=1), lambda arrays: [arrays[1]] * size, 1 / size
        ),
        "alltoall": Operation(
            lambda t: hvd.alltoall(t, splits=[hvd.rank() + 1] * size)[0],
            exchanged,
            rows=lambda rank: size * (rank + 1) + 1,  # the last goes to nobody
        ),
        "equal alltoall": Operation(
            hvd.alltoall,
            lambda arrays: [reference.alltoall(arrays, [[2] * size] * size, r)[0] for r in range(size)],
            rows=lambda rank: 2 * size,
        ),
        "reducescatter": Operation(
            lambda t: hvd.reducescatter(t, **factors(AVERAGE)), scattered(AVERAGE, FACTORS), float(size)
        ),
        "reducescatter of a sum": Operation(
            lambda t: hvd.reducescatter(t, op=hvd.Sum), scattered(SUM), float(size)
        ),
        "group of reducescatters": Operation(
            lambda t: hvd.grouped_reducescatter([t, t * 2.0])[0], scattered(AVERAGE), float(size)
        ),
    }


def of_differences(operation: Operation, inputs: Arrays, weights: Arrays, rank: int) -> np.ndarray:
    """How the loss changes with each element of the rank's input."""

    def loss(arrays: Arrays) -> float:
        results = operation.compute(arrays)
        return sum(float(np.sum(w * r)) for w, r in zip(weights, results, strict=True))

    gradient = np.zeros_like(inputs[rank])
    for place in np.ndindex(*gradient.shape):
        moved = [array.copy() for array in inputs]
        moved[rank][place] += STEP
        gradient[place] = (loss(moved) - loss(inputs)) / STEP
    return gradient * operation.scale


def ranks_differentiate() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for name, operation in operations(size).items():
        inputs = [reference.numbers(r, "float64", (operation.rows(r), 2)) for r in range(size)]
        results = operation.compute(inputs)
        weights = [reference.numbers(r, "float64", results[r].shape, 1) for r in range(size)]
        expected = of_differences(operation, inputs, weights, rank)
        weight = tf.constant(weights[rank])

        def gradient(
            tensor: tf.Tensor, call: Callable[[tf.Tensor], tf.Tensor] = operation.call, weight: Any = weight
        ) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(tensor)
                result = call(tensor)
                loss = tf.reduce_sum(weight * result)
            return result, tape.gradient(loss, tensor)

        unknown = tf.TensorSpec([None, 2], tf.float64)
        for form in (gradient, tf.function(gradient), tf.function(gradient, input_signature=[unknown])):
            result, actual = form(tf.constant(inputs[rank]))
            assert np.allclose(result.numpy(), results[rank], rtol=1e-12), name
            assert actual.shape == inputs[rank].shape, name
            assert np.allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-9), (
                f"{name}: {actual}, {expected}"
            )


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.full), 3])
def test_gradients(run_ranks, ranks: int) -> None:
    run_ranks(ranks, ranks_differentiate)


def ranks_differentiate_a_set() -> list[float]:
    """Over the ranks 1 and 2 of three: gradients stay in the set."""
    members = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[members])
    if not members.included():
        return []
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        gathered = hvd.allgather(variable, process_set=members)
        loss = tf.reduce_sum(gathered * tf.range(1.0, 5.0)) * hvd.rank()
    return tape.gradient(loss, variable).numpy().tolist()


def test_gradients_of_a_process_set(run_ranks) -> None:
    # The average of the two ranks' gradients, which are 1 and 2 times the weights.
    assert run_ranks(3, ranks_differentiate_a_set) == [[], [1.5, 3.0], [4.5, 6.0]]


def rank_differentiates_while_rank_one_has_joined() -> None:
    """Ranks 0 and 2 of three; what rank 1 would get is dropped, what it would give is nothing."""
    hvd.init()
    rank = hvd.rank()
    if rank != 1:
        rows = tf.ones((rank + 1, 2))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(rows)
            gathered = hvd.allgather(rows)
            loss = tf.reduce_sum(gathered * tf.range(1.0, 5.0)[:, tf.newaxis])
        assert gathered.shape == (4, 2)
        # The average over three ranks, of which two had the gradient.
        wanted = np.array([[1.0]] if rank == 0 else [[2.0], [3.0], [4.0]]) * 2 / 3
        assert np.allclose(tape.gradient(loss, rows).numpy(), np.repeat(wanted, 2, axis=1))
        sent = tf.range(8.0)  # the last row goes to nobody
        with tf.GradientTape() as tape:
            tape.watch(sent)
            received, splits = hvd.alltoall(sent, splits=[2, 2, 3])
            loss = tf.reduce_sum(received)
        assert splits.numpy().tolist() == [2 + rank // 2, 0, 2 + rank // 2]
        assert tape.gradient(loss, sent).numpy().tolist() == [1, 1, 0, 0, 1, 1, 1, 0]
        dealt = tf.range(7.0)
        with tf.GradientTape() as tape:
            tape.watch(dealt)
            loss = tf.reduce_sum(hvd.reducescatter(dealt, op=hvd.Sum)) * (rank + 1)
        assert tape.gradient(loss, dealt).numpy().tolist() == [3, 3, 3, 0, 0, 9, 9]
    hvd.join()


def test_gradients_while_a_rank_has_joined(run_ranks) -> None:
    run_ranks(3, rank_differentiates_while_rank_one_has_joined)


@pytest.mark.parametrize("name", ["reducescatter", "alltoall"])
def test_a_graph_that_is_kept_asks_for_the_ranks_that_there_are(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In an elastic job, whose graphs outlast changes of the ranks."""
    hvd.init()
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")

    @tf.function
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(getattr(hvd, name)(x))
        return tape.gradient(total, x)

    given = tf.ones((4, 2))
    operations = gradient.get_concrete_function(given).graph.get_operations()
    assert [each for each in operations if each.type == "HorovodSize"]
    np.testing.assert_array_equal(gradient(given), given)
