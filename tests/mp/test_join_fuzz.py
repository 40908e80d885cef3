"""Random programs of which every rank runs a part of its own length and then joins, against numpy."""

import os
import random
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from matrix import TRANSPORTS
from operations import Case, table
from torch_glue import TorchRunning

import horovod.torch as hvd

PROGRAMS = 500 if os.environ.get("HVD_TEST_FULL") else 100
LONGEST = 12
SHAPES = [(0, 3), (1,), (7, 2), (33,), (5, 0), (130, 3), (2000,)]


@dataclass
class Program:
    """A list of operations, of which rank ``r`` takes part in the first ``counts[r]``."""

    counts: list[int]
    cases: list[Case]

    def surely_last(self) -> set[int]:
        """The ranks of which one must be the last to join.

        A rank that waited for an operation without the others was behind them.
        """
        longest = max(self.counts)
        last = [rank for rank, count in enumerate(self.counts) if count == longest]
        others = max((count for count in self.counts if count != longest), default=0)
        everybody = hvd.global_process_set
        if any(case.wait and case.process_set is everybody for case in self.cases[others:longest]):
            return set(last)
        return set(range(len(self.counts)))


def make_program(seed: int, sets: list[Any], hops: int) -> Program:
    """The same on every rank, also the name and the form of each operation."""
    draw = random.Random(f"join {seed}")
    longest = draw.randrange(LONGEST)
    counts = [draw.randint(0, longest) for _ in range(hvd.size())]
    if draw.random() < 0.1:
        counts = [longest] * hvd.size()
    rows, cases = table(), []
    for index in range(longest):
        kind, dtype, op = rows[draw.randrange(len(rows))]
        case = Case(kind, dtype, op, seed * LONGEST + index, draw.choice(SHAPES), draw.choice(sets), hops)
        case.present = [m for m, rank in enumerate(case.process_set.ranks) if counts[rank] > index]
        case.wait, case.in_place = draw.random() < 0.5, draw.random() < 0.3
        # The names come back in every program, with other operations and other absentees.
        case.name = f"{kind} {index}" if draw.random() < 0.6 else None
        cases.append(case)
    return Program(counts, cases)


def run_program(program: Program, rank: int) -> int:
    """This rank's part; returns who joined last."""
    mine = [c for c in program.cases[: program.counts[rank]] if c.process_set.included()]
    own = random.Random(f"{rank} {program.counts} {len(mine)}")
    flying = []
    for case in mine:
        running = TorchRunning(case).start()
        if case.wait:
            running.finish()
        else:
            flying.append(running)
    own.shuffle(flying)
    after = flying[: own.randint(0, len(flying))]
    for running in flying[len(after) :]:
        running.finish()
    last = hvd.join()
    for running in after:
        running.finish()
    assert last in program.surely_last(), f"{last} joined last, with {program.counts}"
    return last


def ranks_join(programs: int, hops: int) -> list[int]:
    """Returns who joined last, by program."""
    size = int(os.environ["HOROVOD_SIZE"])
    own_sets = [hvd.ProcessSet(list(range(size - 1))), hvd.ProcessSet(list(range(1, size)))]
    hvd.init(process_sets=own_sets)
    sets = [hvd.global_process_set, hvd.global_process_set, *own_sets]
    last = []
    for seed in range(programs):
        program = make_program(seed, sets, hops)
        try:
            last.append(run_program(program, hvd.rank()))
        except Exception:
            print(f"in program {seed}, of which the ranks run {program.counts}: {program.cases}")
            raise
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
    return last


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [3, 4])
def test_random_programs(run_ranks, ranks: int, transport: str) -> None:
    arguments = [PROGRAMS, 0 if transport == "shm" else ranks]
    env = {"HOROVOD_TRANSPORT": transport}
    results = run_ranks(ranks, ranks_join, arguments, env=env, timeout=60 + PROGRAMS // 5)
    assert all(last == results[0] for last in results)  # all are told the same
    assert len(set(results[0])) == ranks


def ranks_meet_a_joined_root() -> str:
    """Rank 0 joins at once; the others want its tensor. Returns the last to join and the error."""
    hvd.init()
    text = ""
    if hvd.rank() != 0:
        with pytest.raises(hvd.TensorMismatchError) as caught:
            hvd.broadcast(torch.ones(3), root_rank=0, name="from rank 0")
        text = str(caught.value)
        assert hvd.broadcast(torch.full((3,), hvd.rank()), root_rank=1).tolist() == [1] * 3
    assert hvd.join() != 0
    assert hvd.broadcast(torch.full((3,), hvd.rank()), root_rank=0).tolist() == [0] * 3
    return text


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_joined_root_is_named(run_ranks, transport: str) -> None:
    texts = run_ranks(3, ranks_meet_a_joined_root, env={"HOROVOD_TRANSPORT": transport})
    assert texts[1] == texts[2]
    assert "from rank 0" in texts[1] and "joined" in texts[1]


def ranks_leave_after_join() -> int:
    """The first ranks have long ended when the last one does."""
    hvd.init()
    hvd.allreduce(torch.ones(3))
    last = hvd.join()
    time.sleep(0.3 * hvd.rank())
    return last


def test_ranks_may_end_after_join(run_ranks) -> None:
    assert len(set(run_ranks(3, ranks_leave_after_join, finalize=True))) == 1
