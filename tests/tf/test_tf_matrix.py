"""Every operation x type x number of ranks x process set x transport, eagerly and in graphs, against numpy:
the cases that torch passes too.
"""

import random
from collections.abc import Iterator

import pytest
from matrix import SHAPES, TRANSPORTS, check_digests, run_table
from operations import Case, Running
from tensorflow_glue import TYPES, TensorFlowRunning, run_in_graph

import horovod.tensorflow as hvd


def ranks_matrix(sizes: int) -> dict[str, str]:
    """With one size every other window is a graph, with more each is run in both ways."""

    def run(number: int, cases: list[Case], order: random.Random) -> Iterator[Running]:
        for in_graph in [number % 2 == 0] if sizes == 1 else [False, True]:
            window = [TensorFlowRunning(case) for case in cases if case.dtype in TYPES]
            if in_graph:
                run_in_graph(window, order)
            for running in window:
                yield running if in_graph else running.start()

    return run_table(hvd, sizes, run)


# The rest takes long, and torch passes it in tests/mp.
USUAL = [(1, "shm"), (2, "tcp")]
SLOW = [(3, "shm")]
RARE = [(ranks, transport) for ranks in (1, 2, 3, 4) for transport in TRANSPORTS]


@pytest.mark.parametrize(
    ("ranks", "transport"),
    [
        *USUAL,
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
        *(pytest.param(*case, marks=pytest.mark.full) for case in RARE if case not in USUAL + SLOW),
    ],
)
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    check_digests(run_ranks(ranks, ranks_matrix, [1], env={"HOROVOD_TRANSPORT": transport}, timeout=110))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_type_and_size(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    check_digests(run_ranks(ranks, ranks_matrix, [len(SHAPES)], env=env, timeout=1000))
