"""Every operation x type x number of ranks x process set x transport, in all forms, against numpy."""

import os

import pytest
import reference
import torch
from matrix import SHAPES, TRANSPORTS, check_digests, run_table, run_window
from operations import PLANS, Case
from reference import DTYPES, OPS
from torch_glue import TorchRunning, array, tensor

import horovod.torch as hvd


def ranks_matrix(sizes: int) -> dict[str, str]:
    return run_table(
        hvd, sizes, lambda _, cases, order: run_window([TorchRunning(case) for case in cases], order)
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    sizes = 1 if ranks == 8 else 2
    check_digests(run_ranks(ranks, ranks_matrix, [sizes], env={"HOROVOD_TRANSPORT": transport}))


@pytest.mark.parametrize(("chunk_bytes", "slots"), [(16384, 2), (1 << 20, 3)])
def test_every_operation_through_other_staging(run_ranks, chunk_bytes: int, slots: int) -> None:
    env = {"HOROVOD_SHM_CHUNK_BYTES": str(chunk_bytes), "HOROVOD_SHM_STAGING_SLOTS": str(slots)}
    check_digests(run_ranks(3, ranks_matrix, [2], env={"HOROVOD_TRANSPORT": "shm", **env}))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_type_and_size(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    check_digests(run_ranks(ranks, ranks_matrix, [len(SHAPES)], env=env, timeout=600))


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
