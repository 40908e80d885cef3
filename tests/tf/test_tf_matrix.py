"""Every operation x type x number of ranks x process set x transport, eagerly and in graphs, against numpy:
the cases that torch passes too.
"""

import os
import random

import numpy as np
import pytest
import reference
from matrix import SHAPES, TRANSPORTS, check_digests, sets_of, windows
from tensorflow_glue import TensorFlowRunning, run_in_graph

import horovod.tensorflow as hvd


def ranks_matrix(sizes: int) -> dict[str, str]:
    """The whole table on all process sets; returns a digest of what must be equal everywhere, by set. With
    one size every other window is a graph, with more each is run in both ways.
    """
    own_sets = [hvd.ProcessSet(members) for members in sets_of(int(os.environ.get("HOROVOD_SIZE", "1")))]
    hvd.init(process_sets=own_sets)
    mine = [s for s in [hvd.global_process_set, *own_sets] if s.included()]
    order = random.Random(hvd.rank())
    results: dict[str, list[np.ndarray]] = {str(s.ranks): [] for s in mine}
    for number, cases in enumerate(windows(mine, sizes, os.environ["HOROVOD_TRANSPORT"])):
        for in_graph in [number % 2 == 0] if sizes == 1 else [False, True]:
            window = [TensorFlowRunning(case) for case in cases]
            if in_graph:
                run_in_graph(window, order)
            for running in window:
                got = (running if in_graph else running.start()).finish()
                if running.plan.everywhere:
                    results[str(running.case.process_set.ranks)] += got
    return {members: reference.digest(arrays) for members, arrays in results.items()}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    check_digests(run_ranks(ranks, ranks_matrix, [1], env={"HOROVOD_TRANSPORT": transport}, timeout=110))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_type_and_size(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    check_digests(run_ranks(ranks, ranks_matrix, [len(SHAPES)], env=env, timeout=1000))
