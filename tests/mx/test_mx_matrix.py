"""Every operation x type x number of ranks x process set x transport against numpy: the cases that torch and
TensorFlow pass too.
"""

import random

import pytest
from matrix import SHAPES, TRANSPORTS, check_digests, run_table, run_window
from mxnet_glue import DTYPES, MXNetRunning
from operations import Case, Running

import horovod.mxnet as hvd


def ranks_matrix(sizes: int) -> dict[str, str]:
    return run_table(hvd, sizes, run)


def run(_: int, cases: list[Case], order: random.Random) -> list[Running]:
    return run_window([MXNetRunning(case) for case in cases if case.dtype in DTYPES], order)


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
