"""One process with torch, TensorFlow and MXNet: one engine, which serves all three."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import threads
from check_mxnet import mx

import horovod.mxnet

ROUNDS = 20


def reductions() -> dict[str, Callable[[np.ndarray, str | None], np.ndarray]]:
    """The sum over the ranks, by each framework."""
    import tensorflow
    import torch

    import horovod.tensorflow
    import horovod.torch

    def by_torch(array: np.ndarray, name: str | None) -> np.ndarray:
        return horovod.torch.allreduce(torch.from_numpy(array), op=horovod.torch.Sum, name=name).numpy()

    def by_tensorflow(array: np.ndarray, name: str | None) -> np.ndarray:
        tensor = tensorflow.constant(array)
        return horovod.tensorflow.allreduce(tensor, op=horovod.tensorflow.Sum, name=name).numpy()

    def by_mxnet(array: np.ndarray, name: str | None) -> np.ndarray:
        return horovod.mxnet.allreduce(mx.nd.array(array), op=horovod.mxnet.Sum, name=name).asnumpy()

    return {"torch": by_torch, "tensorflow": by_tensorflow, "mxnet": by_mxnet}


def ranks_use_all() -> list[Any]:
    """In turn without names, at once with names. Returns how many engines there are, and whether all tensors
    were theirs.
    """
    horovod.mxnet.init()
    rank, size = horovod.mxnet.rank(), horovod.mxnet.size()
    by = reductions()
    everybodys = sum(range(size))

    def check(framework: str, number: int, name: str | None) -> None:
        result = by[framework](np.full(100, rank + number, np.float32), name)
        assert result.tolist() == [everybodys + size * number] * 100, framework

    for number in range(ROUNDS):
        for framework in by:
            check(framework, number, None)
    problems: list[BaseException] = []

    def loop(framework: str) -> None:
        try:
            for number in range(ROUNDS):
                check(framework, number, f"{framework} {number}")
        except BaseException as error:
            problems.append(error)

    loops = [threading.Thread(target=loop, args=[framework]) for framework in by]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join()
    assert not problems, problems
    return [threads.names()["hvd-engine"], horovod.mxnet.counters()["tensors"] >= 6 * ROUNDS]


def test_three_frameworks_share_one_engine(run_ranks_of_all) -> None:
    assert run_ranks_of_all(2, ranks_use_all, timeout=110) == [[1, True]] * 2
