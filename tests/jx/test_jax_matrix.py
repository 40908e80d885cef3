"""Every operation x type x number of ranks x process set x transport against numpy, outside of compiled
functions and inside: the cases that the other frameworks pass too.
"""

import random

import pytest
from jax_glue import JaxRunning, is_even, run_compiled
from matrix import TRANSPORTS, check_digests, run_table, run_window
from operations import Case, Running

import horovod.jax as hvd


def ranks_matrix() -> dict[str, str]:
    return run_table(hvd, 1, run)


def run(_: int, cases: list[Case], order: random.Random) -> list[Running]:
    return run_window([JaxRunning(case) for case in cases], order)


def ranks_compiled_matrix() -> dict[str, str]:
    return run_table(hvd, 1, compile_and_run)


def compile_and_run(_: int, cases: list[Case], order: random.Random) -> list[Running]:
    """Those that can be in a compiled function."""
    window = list(filter(is_even, map(JaxRunning, cases)))
    run_compiled(window)
    return window


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    check_digests(run_ranks(ranks, ranks_matrix, env={"HOROVOD_TRANSPORT": transport}, timeout=110))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_and_type_compiled(run_ranks, ranks: int, transport: str) -> None:
    check_digests(run_ranks(ranks, ranks_compiled_matrix, env={"HOROVOD_TRANSPORT": transport}, timeout=110))
