"""Every operation x type x number of ranks x process set x transport against numpy: the cases that torch and
TensorFlow pass too.
"""

import os
import random

import numpy as np
import pytest
import reference
from matrix import SHAPES, TRANSPORTS, check_digests, run_window, sets_of, windows
from mxnet_glue import DTYPES, MXNetRunning

import horovod.mxnet as hvd


def ranks_matrix(sizes: int) -> dict[str, str]:
    """The whole table on all process sets; returns a digest of what must be equal everywhere, by set."""
    own_sets = [hvd.ProcessSet(members) for members in sets_of(int(os.environ.get("HOROVOD_SIZE", "1")))]
    hvd.init(process_sets=own_sets)
    mine = [s for s in [hvd.global_process_set, *own_sets] if s.included()]
    order = random.Random(hvd.rank())
    results: dict[str, list[np.ndarray]] = {str(s.ranks): [] for s in mine}
    for cases in windows(mine, sizes, os.environ["HOROVOD_TRANSPORT"]):
        window = [MXNetRunning(case) for case in cases if case.dtype in DTYPES]
        run_window(window, order)
        for running in window:
            got = running.finish()
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
