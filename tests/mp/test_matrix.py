"""Every operation x type x number of ranks x process set x transport, in all forms, against numpy."""

import os
import random
from typing import Any

import pytest
import reference
import torch
from operations import PLANS, Case, Running, table
from reference import DTYPES, OPS

import horovod.torch as hvd

SHAPES = [(0, 3), (1,), (7, 2), (1023,), (4097, 3), (2, 0), (40, 2, 3), (5,)]
WINDOW = 16  # rows of the table in flight together
TRANSPORTS = ["shm", "tcp"]


def cases_on(process_set: Any, sizes: int, hops: int) -> list[Case]:
    """The whole table, each row with some of the shapes in turn, and the forms in turn."""
    cases = []
    for row, (kind, dtype, op) in enumerate(table()):
        for turn in range(sizes):
            number = row * sizes + turn
            shape = SHAPES[(row + turn * (len(SHAPES) // sizes)) % len(SHAPES)]
            case = Case(kind, dtype, op, number, shape, process_set, hops)
            case.wait, case.in_place = row % 3 == turn % 3, row % 2 == turn % 2
            # What is waited for at once is in one order everywhere, so it needs no name.
            case.name = f"{process_set.ranks} {number}" if not case.wait or row % 4 < 2 else None
            cases.append(case)
    return cases


def run_window(window: list[Running], order: random.Random) -> None:
    """Starts all; among those that do not wait in an order of this rank."""
    flying = [running for running in window if not running.case.wait]
    order.shuffle(flying)
    half = len(flying) // 2
    for running in [*flying[:half], *(r for r in window if r.case.wait), *flying[half:]]:
        running.start()


def sets_of(ranks: int) -> list[list[int]]:
    """Two that overlap, and one of a single rank; of those that differ from all ranks."""
    sets = [list(range(ranks - 1)), list(range(1, ranks)), [ranks - 1]]
    return [s for i, s in enumerate(sets) if s and len(s) < ranks and s not in sets[:i]]


def ranks_matrix(sizes: int) -> dict[str, str]:
    """The whole table on all process sets; returns a digest of what must be equal everywhere, by set."""
    own_sets = [hvd.ProcessSet(members) for members in sets_of(int(os.environ.get("HOROVOD_SIZE", "1")))]
    hvd.init(process_sets=own_sets)
    mine = [s for s in [hvd.global_process_set, *own_sets] if s.included()]
    shm = os.environ["HOROVOD_TRANSPORT"] == "shm"
    columns = [cases_on(s, sizes, hops=0 if shm or s.size() < 3 else s.size()) for s in mine]
    order = random.Random(hvd.rank())
    results: dict[str, list[torch.Tensor]] = {str(s.ranks): [] for s in mine}
    for start in range(0, len(columns[0]), WINDOW):  # the same rows everywhere
        rows = zip(*[column[start : start + WINDOW] for column in columns], strict=True)
        window = [Running(case) for row in rows for case in row]
        run_window(window, order)
        for running in window:
            got = running.finish()
            if running.plan.everywhere:
                results[str(running.case.process_set.ranks)] += got
    return {members: reference.digest(tensors) for members, tensors in results.items()}


def check_digests(outcomes: list[dict[str, str]]) -> None:
    for members in {key for outcome in outcomes for key in outcome}:
        digests = {outcome[members] for outcome in outcomes if members in outcome}
        assert len(digests) == 1, f"the ranks {members} hold different bits"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_and_type(run_ranks, ranks: int, transport: str) -> None:
    sizes = 1 if ranks == 8 else 2
    check_digests(run_ranks(ranks, ranks_matrix, [sizes], env={"HOROVOD_TRANSPORT": transport}))


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_operation_type_and_size(run_ranks, ranks: int, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    check_digests(run_ranks(ranks, ranks_matrix, [len(SHAPES)], env=env, timeout=600))


BLOCK = 1_000_003  # a large tensor repeats a block whose length divides no chunk, and so does its result


def large_allreduce(dtype: str, op: str, count: int) -> torch.Tensor:
    blocks = [reference.numbers(rank, dtype, min(count, BLOCK), count) for rank in range(hvd.size())]
    mine = reference.tensor(blocks[hvd.rank()], dtype).repeat(-(-count // BLOCK))[:count]
    result = hvd.allreduce_(mine, op=OPS[op], name=f"large {dtype} {op} {count}")
    expected = reference.allreduce(blocks, dtype, OPS[op])
    exact = os.environ["HOROVOD_TRANSPORT"] == "shm" or hvd.size() < 3
    for got in result.split(BLOCK):
        problem = reference.differs(got, expected[: len(got)], dtype, hops=0 if exact else hvd.size())
        assert not problem, f"{count} of {dtype} {op}: {problem}"
    return result


def ranks_large(dtypes: list[str], ops: list[str], counts: list[int], rows: int) -> dict[str, str]:
    """Large allreduces, then every operation with ``rows``, each alone."""
    hvd.init()
    cases = [(dtype, op, count) for dtype in dtypes for op in ops for count in counts]
    digests = [reference.digest([large_allreduce(*c)]) for c in cases if c[:2] != ("bool", "Average")]
    for number, (kind, dtype) in enumerate((kind, dtype) for kind in PLANS for dtype in dtypes):
        hops = hvd.size() * (os.environ["HOROVOD_TRANSPORT"] == "tcp")
        case = Case(kind, dtype, "Sum", number, (rows, 3), hvd.global_process_set, hops)
        Running(case).start().finish()
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
