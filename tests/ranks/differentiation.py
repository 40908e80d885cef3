"""The gradient of every operation against differences of what numpy computes, in any framework.

The loss is the sum, over the ranks, of each rank's own weights times its own result. Its gradient is what an
allreduce and an alltoall have; an allgather and a broadcast have it divided by the number of ranks, and a
reducescatter times that number, unless the gradients of one process are asked for.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import reference
from framework import Framework
from reference import AVERAGE, MAX, MIN, PRODUCT, SUM

STEP = 0.5  # of the differences, which are exact in any size where the operations are linear
SMALL_STEP = 2.0**-20  # of those that are not
ONE_PROCESS = "HOROVOD_ONE_PROCESS_GRADIENTS"
FACTORS = (0.5, 3.0)
Arrays = list[np.ndarray]  # one a rank


@dataclass
class Operation:
    """One to differentiate, of this rank's tensor, and what numpy says about all ranks' arrays."""

    call: Callable[[Any], Any]
    compute: Callable[[Arrays], Arrays]
    scale: float = 1.0  # of the gradient, in relation to that of the sum of the losses
    rows: Callable[[int], int] = lambda rank: 4
    step: float = STEP


def _of_sum(size: int, op: int, factors: tuple[float, float] = (1.0, 1.0)) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [reference.allreduce(arrays, "float64", op, *factors)] * size


def _scattered(size: int, op: int, factors: tuple[float, float] = (1.0, 1.0)) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [
        reference.reducescatter(arrays, "float64", op, rank, *factors) for rank in range(size)
    ]


def _exchanged(size: int, splits: list[list[int]]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [reference.alltoall(arrays, splits, rank)[0] for rank in range(size)]


def operations(framework: Framework, size: int) -> dict[str, Operation]:
    """All, at their places in a job of ``size`` ranks."""
    hvd, concatenated = framework.hvd, framework.concatenated
    factors = {"prescale_factor": FACTORS[0], "postscale_factor": FACTORS[1]}
    gathered = Operation(
        hvd.allgather, lambda arrays: [reference.allgather(arrays)] * size, 1 / size, lambda rank: 2 * rank
    )
    uneven = _exchanged(size, [[sender + 1] * size for sender in range(size)])
    return {
        "sum": Operation(lambda t: hvd.allreduce(t, op=hvd.Sum), _of_sum(size, SUM)),
        "average": Operation(hvd.allreduce, _of_sum(size, AVERAGE)),
        "factors": Operation(lambda t: hvd.allreduce(t, op=hvd.Sum, **factors), _of_sum(size, SUM, FACTORS)),
        **{
            name: Operation(
                lambda t, name=name: hvd.allreduce(t, op=getattr(hvd, name), **factors),
                _of_sum(size, op, FACTORS),
                step=SMALL_STEP,
            )
            for name, op in (("Max", MAX), ("Min", MIN), ("Product", PRODUCT))
        },
        "group of products": Operation(
            lambda t: concatenated(hvd.grouped_allreduce([t[:1], t[1:]], op=hvd.Product)),
            _of_sum(size, PRODUCT),
        ),
        "group": Operation(
            lambda t: concatenated(hvd.grouped_allreduce([t[:1], t[1:]], op=hvd.Sum)), _of_sum(size, SUM)
        ),
        "allgather": gathered,
        "group of allgathers": Operation(
            lambda t: hvd.grouped_allgather([t, t * 2.0])[0], gathered.compute, gathered.scale, gathered.rows
        ),
        "broadcast": Operation(
            lambda t: hvd.broadcast(t, root_rank=1), lambda arrays: [arrays[1]] * size, 1 / size
        ),
        "alltoall": Operation(
            lambda t: hvd.alltoall(t, splits=[hvd.rank() + 1] * size)[0],
            uneven,
            rows=lambda rank: size * (rank + 1) + 1,  # the last goes to nobody
        ),
        "equal alltoall": Operation(
            hvd.alltoall, _exchanged(size, [[2] * size] * size), rows=lambda rank: 2 * size
        ),
        "reducescatter": Operation(
            lambda t: hvd.reducescatter(t, **factors), _scattered(size, AVERAGE, FACTORS), float(size)
        ),
        "reducescatter of a sum": Operation(
            lambda t: hvd.reducescatter(t, op=hvd.Sum), _scattered(size, SUM), float(size)
        ),
        "group of reducescatters": Operation(
            lambda t: hvd.grouped_reducescatter([t, t * 2.0])[0], _scattered(size, AVERAGE), float(size)
        ),
    }


def of_differences(
    operation: Operation, inputs: Arrays, weights: Arrays, rank: int, scale: float
) -> np.ndarray:
    """How the loss changes with each element of the rank's input."""

    def loss(arrays: Arrays) -> float:
        results = operation.compute(arrays)
        return sum(float(np.sum(w * r)) for w, r in zip(weights, results, strict=True))

    gradient = np.zeros_like(inputs[rank])
    for place in np.ndindex(*gradient.shape):
        moved = [array.copy() for array in inputs]
        moved[rank][place] += operation.step
        gradient[place] = (loss(moved) - loss(inputs)) / operation.step
    return gradient * scale


def check_gradients(framework: Framework) -> None:
    """Of all operations, after init."""
    os.environ.pop(ONE_PROCESS, None)
    _check_gradients(framework)
    os.environ[ONE_PROCESS] = "1"
    try:
        _check_gradients(framework, of_one_process=True)
    finally:
        del os.environ[ONE_PROCESS]


def _check_gradients(framework: Framework, of_one_process: bool = False) -> None:
    rank, size = framework.hvd.rank(), framework.hvd.size()
    for name, operation in operations(framework, size).items():
        if of_one_process and operation.scale == 1.0:
            continue
        inputs = [reference.numbers(r, "float64", (operation.rows(r), 2)) for r in range(size)]
        results = operation.compute(inputs)
        weights = [reference.numbers(r, "float64", results[r].shape, 1) for r in range(size)]
        scale = 1.0 if of_one_process else operation.scale
        expected = of_differences(operation, inputs, weights, rank, scale)
        result, actual = framework.gradient(operation.call, weights[rank], inputs[rank])
        assert np.allclose(result, results[rank], rtol=1e-12), name
        assert actual.shape == inputs[rank].shape, name
        assert np.allclose(
            actual, expected, rtol=1e-9, atol=1e-7 if operation.step == SMALL_STEP else 1e-9
        ), f"{name}: {actual}, {expected}"


def check_gradients_of_a_set(framework: Framework) -> None:
    """Over the ranks 1 and 2 of three, which the function registers: gradients stay in the set."""
    hvd = framework.hvd
    members = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[members])
    if not members.included():
        return
    weights = np.arange(1.0, 5.0) * hvd.rank()
    _, gradient = framework.gradient(
        lambda t: hvd.allgather(t, process_set=members), weights, np.array([1.0, 2.0])
    )
    # The average of the two ranks' gradients, which are 1 and 2 times the numbers from 1 to 4.
    assert gradient.tolist() == ([1.5, 3.0] if hvd.rank() == 1 else [4.5, 6.0])


def check_gradients_while_rank_one_has_joined(framework: Framework) -> None:
    """Ranks 0 and 2 of three; what rank 1 would get is dropped, what it would give is nothing."""
    hvd = framework.hvd
    hvd.init()
    rank = hvd.rank()
    if rank != 1:
        weights = np.repeat(np.arange(1.0, 5.0)[:, np.newaxis], 2, axis=1)
        gathered, gradient = framework.gradient(hvd.allgather, weights, np.ones((rank + 1, 2)))
        assert gathered.shape == (4, 2)
        # The average over three ranks, of which two had the gradient.
        wanted = np.array([[1.0]] if rank == 0 else [[2.0], [3.0], [4.0]]) * 2 / 3
        assert np.allclose(gradient, np.repeat(wanted, 2, axis=1))

        def exchange(tensor: Any) -> Any:
            received, splits = hvd.alltoall(tensor, splits=[2, 2, 3])
            assert framework.array(splits).tolist() == [2 + rank // 2, 0, 2 + rank // 2]
            return received

        sent = np.arange(8.0)  # the last row goes to nobody
        _, gradient = framework.gradient(exchange, np.ones(4 + rank), sent)
        assert gradient.tolist() == [1, 1, 0, 0, 1, 1, 1, 0]
        weights = np.full(3 if rank == 0 else 2, rank + 1.0)
        _, gradient = framework.gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), weights, np.arange(7.0))
        assert gradient.tolist() == [3, 3, 3, 0, 0, 9, 9]
    hvd.join()
