"""Every operation x type x number of ranks x process set x transport, in all forms, against numpy."""

import os
import random

import numpy as np
import pytest
import reference
import torch
from matrix import SHAPES, TRANSPORTS, check_digests, run_window, sets_of, windows
from operations import PLANS, Case
from reference import DTYPES, OPS
from torch_glue import TorchRunning, array, tensor

import horovod.torch as hvd


def ranks_matrix(sizes: int, transport: str) -> dict[str, str]:
    """The whole table on all process sets; returns a digest of what must be equal everywhere, by set."""
    own_sets = [hvd.ProcessSet(members) for members in sets_of(int(os.environ.get("HOROVOD_SIZE", "1")))]
    hvd.init(process_sets=own_sets)
    mine = [s for s in [hvd.global_process_set, *own_sets] if s.included()]
    order = random.Random(hvd.rank())
    results: dict[str, list[np.ndarray]] = {str(s.ranks): [] for s in mine}
    for cases in windows(mine, sizes, transport):
        window = [TorchRunning(case) for case in cases]
        run_window(window, order)
        for running in window:
            got = running.finish()
            if running.plan.everywhere:
                results[str(running.case.process_set.ranks)] += got
    return {members: reference.digest(arrays) for members, arrays in results.items()}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    sizes = 1 if ranks == 8 else 2
    check_digests(run_ranks(ranks, ranks_matrix, [sizes, transport], env={"HOROVOD_TRANSPORT": transport}))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_type_and_size(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    check_digests(run_ranks(ranks, ranks_matrix, [len(SHAPES), transport], env=env, timeout=600))


BLOCK = 1_000_003  # a large tensor repeats a block whose length divides no chunk, and so does its result


def large_allreduce(dtype: str, op: str, count: int) -> torch.Tensor:
    blocks = [reference.numbers(rank, dtype, min(count, BLOCK), count) for rank in range(hvd.size())]
    mine = tensor(blocks[hvd.rank()], dtype).repeat(-(-count // BLOCK))[:count]
    result = hvd.allreduce_(mine, op=OPS[op], name=f"large {dtype} {op} {count}")
    expected = reference.allreduce(blocks, dtype, OPS[op])
    exact = os.environ["HOROVOD_TRANSPORT"] == "shm" or hvd.size() < 3
    for got in result.split(BLOCK):
        problem = reference.differs(array(got), expected[: len(got)], dtype, hops=0 if exact else hvd.size())
        assert not problem, f"{count} of {dtype} {op}: {problem}"
    return result


def ranks_large(dtypes: list[str], ops: list[str], counts: list[int], rows: int) -> dict[str, str]:
    """Large allreduces, then every operation with ``rows``, each alone."""
    hvd.init()
    cases = [(dtype, op, count) for dtype in dtypes for op in ops for count in counts]
    digests = [reference.digest([array(large_allreduce(*c))]) for c in cases if c[:2] != ("bool", "Average")]
    for number, (kind, dtype) in enumerate((kind, dtype) for kind in PLANS for dtype in dtypes):
        hops = hvd.size() * (os.environ["HOROVOD_TRANSPORT"] == "tcp")
        case = Case(kind, dtype, "Sum", number, (rows, 3), hvd.global_process_set, hops)
        TorchRunning(case).start().finish()
    return {"all": " ".join(digests)}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("ranks", "dtype", "per_mib"), [(2, "float32", 1 << 18), (3, "bfloat16", 1 << 19), (4, "int8", 1 << 20)]
)
def test_large(run_ranks, ranks: int, dtype: str, per_mib: int, transport: str) -> None:
    arguments = [[dtype], ["Sum", "Max"], [per_mib + 3, 64 * per_mib], per_mib // 3 + 1]
    check_digests(run_ranks(ranks, ranks_large, arguments, env={"HOROVOD_TRANSPORT": transport}))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_large_everywhere(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    arguments: list[list[object]] = [[DTYPES, list(OPS), [(1 << 20) + 3], 100_003]]
    for dtype, count in (("float32", 1 << 24), ("bfloat16", 1 << 25), ("int8", 1 << 26)):
        arguments.append([[dtype], ["Sum", "Max"], [count], 1_000_003])
    for each in arguments:
        check_digests(run_ranks(ranks, ranks_large, each, env=env, timeout=300))


def ranks_huge(count: int) -> int:
    """In place, with a count that 32 bits do not hold."""
    hvd.init()
    return large_allreduce("int8", "Sum", count).numel()


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_more_than_two_to_the_31_elements(run_ranks, transport: str) -> None:
    count = 2**31 + 5
    results = run_ranks(2, ranks_huge, [count], env={"HOROVOD_TRANSPORT": transport}, timeout=300)
    assert results == [count, count]
