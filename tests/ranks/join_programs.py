"""Random programs of which every rank runs a part of its own length and then joins, in any framework."""

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from framework import Framework
from operations import Case, table

LONGEST = 12
SHAPES = [(0, 3), (1,), (7, 2), (33,), (5, 0), (130, 3), (2000,)]


@dataclass
class Program:
    """A list of operations, of which rank ``r`` takes part in the first ``counts[r]``."""

    counts: list[int]
    cases: list[Case]

    def surely_last(self, everybody: Any) -> set[int]:
        """The ranks of which one must be the last to join.

        A rank that waited for an operation without the others was behind them.
        """
        longest = max(self.counts)
        last = [rank for rank, count in enumerate(self.counts) if count == longest]
        others = max((count for count in self.counts if count != longest), default=0)
        if any(case.wait and case.process_set is everybody for case in self.cases[others:longest]):
            return set(last)
        return set(range(len(self.counts)))


def make_program(
    seed: int, size: int, sets: list[Any], hops: int, rows: list[tuple[str, str, str]]
) -> Program:
    """The same on every rank, also the name and the form of each operation."""
    draw = random.Random(f"join {seed}")
    longest = draw.randrange(LONGEST)
    counts = [draw.randint(0, longest) for _ in range(size)]
    if draw.random() < 0.1:
        counts = [longest] * size
    cases = []
    for index in range(longest):
        kind, dtype, op = rows[draw.randrange(len(rows))]
        case = Case(kind, dtype, op, seed * LONGEST + index, draw.choice(SHAPES), draw.choice(sets), hops)
        case.present = [m for m, rank in enumerate(case.process_set.ranks) if counts[rank] > index]
        case.wait, case.in_place = draw.random() < 0.5, draw.random() < 0.3
        # The names come back in every program, with other operations and other absentees.
        case.name = f"{kind} {index}" if draw.random() < 0.6 else None
        cases.append(case)
    return Program(counts, cases)


def run_program(framework: Framework, program: Program, rank: int) -> int:
    """This rank's part; returns who joined last."""
    mine = [c for c in program.cases[: program.counts[rank]] if c.process_set.included()]
    own = random.Random(f"{rank} {program.counts} {len(mine)}")
    flying = []
    for case in mine:
        running = framework.running(case).start()
        if case.wait:
            running.finish()
        else:
            flying.append(running)
    own.shuffle(flying)
    after = flying[: own.randint(0, len(flying))]
    for running in flying[len(after) :]:
        running.finish()
    last = int(framework.hvd.join())
    for running in after:
        running.finish()
    surely = program.surely_last(framework.hvd.global_process_set)
    assert last in surely, f"{last} joined last, with {program.counts}"
    return last


def run_programs(framework: Framework, programs: int, hops: int) -> list[int]:
    """Returns who joined last, by program."""
    hvd, size = framework.hvd, int(os.environ["HOROVOD_SIZE"])
    own_sets = [hvd.ProcessSet(list(range(size - 1))), hvd.ProcessSet(list(range(1, size)))]
    hvd.init(process_sets=own_sets)
    sets = [hvd.global_process_set, hvd.global_process_set, *own_sets]
    rows = [row for row in table() if row[1] in framework.dtypes]
    last = []
    for seed in range(programs):
        program = make_program(seed, size, sets, hops, rows)
        try:
            last.append(run_program(framework, program, hvd.rank()))
        except Exception:
            print(f"in program {seed}, of which the ranks run {program.counts}: {program.cases}")
            raise
    result = framework.array(hvd.allreduce(framework.ones(3), op=hvd.Sum))
    assert result.tolist() == [size] * 3
    return last


def meet_a_joined_root(framework: Framework) -> str:
    """Rank 0 joins at once; the others want its tensor. Returns the text of the error."""
    hvd = framework.hvd
    hvd.init()

    def broadcast(root: int, name: str | None = None) -> list[float]:
        mine = framework.tensor(np.full((3,), hvd.rank(), np.float32))
        return framework.array(hvd.broadcast(mine, root_rank=root, name=name)).tolist()

    text = ""
    if hvd.rank() != 0:
        with pytest.raises(framework.disagreement) as caught:
            broadcast(0, "from rank 0")
        text = str(caught.value)
        assert broadcast(1) == [1] * 3
    assert int(hvd.join()) != 0
    assert broadcast(0) == [0] * 3
    return text
