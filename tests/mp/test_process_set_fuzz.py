"""Random sets are added, used and removed while the job runs, against numpy."""

import os
import random
from typing import Any

import pytest
from matrix import TRANSPORTS
from operations import Case, Running, table
from torch_glue import TorchRunning

import horovod.torch as hvd

RANKS = 4
PROGRAMS = 500 if os.environ.get("HVD_TEST_FULL") else 30
MOST_SETS = 6
SHAPES = [(0, 3), (1,), (7, 2), (33,), (5, 0), (130, 3), (2000,)]
OWN_ORDER = random.Random()  # each rank has another


class Program:
    """One random program; ``draw`` gives the same on every rank."""

    def __init__(self, seed: int, hops: int) -> None:
        self.draw = random.Random(f"sets {seed}")
        self.hops = hops
        self.number = seed * 1000
        self.sets: list[Any] = []
        self.ids: list[int] = []

    def run(self) -> list[int]:
        """Returns the numbers that the sets got."""
        for _ in range(self.draw.randint(2, 5)):
            for _ in range(self.draw.randint(0, 3)):
                self.add()
            cases = [self.case() for _ in range(self.draw.randint(0, 16))]
            flying = start(cases)
            if self.draw.random() < 0.5:
                busy = [case.process_set for case in cases]
                self.remove_one_of([s for s in self.sets if s not in busy])
            for running in flying:
                running.finish()
        while self.sets:
            self.remove_one_of(self.sets)
        return self.ids

    def add(self) -> None:
        ranks = self.draw.sample(range(hvd.size()), self.draw.randint(1, hvd.size() - 1))
        if len(self.sets) == MOST_SETS or sorted(ranks) in [s.ranks for s in self.sets]:
            return
        self.sets.append(hvd.add_process_set(ranks))
        self.ids.append(self.sets[-1].process_set_id)

    def remove_one_of(self, sets: list[Any]) -> None:
        if not sets:
            return
        process_set = self.draw.choice(sets)
        self.sets.remove(process_set)
        assert hvd.remove_process_set(process_set) is True
        assert process_set.process_set_id is None
        with pytest.raises(ValueError, match="not registered"):
            hvd.barrier(process_set=process_set)

    def case(self) -> Case:
        self.number += 1
        kind, dtype, op = self.draw.choice(table())
        process_set = self.draw.choice([hvd.global_process_set, *self.sets])
        case = Case(kind, dtype, op, self.number, self.draw.choice(SHAPES), process_set, self.hops)
        case.wait, case.in_place = self.draw.random() < 0.2, self.draw.random() < 0.3
        case.name = f"{self.number % 50}" if self.draw.random() < 0.6 else None
        return case


def start(cases: list[Case]) -> list[Running]:
    """Starts this rank's operations in an order of its own; returns those in flight, in another order."""
    mine = [case for case in cases if case.process_set.included()]
    flying = [TorchRunning(case).start() for case in in_own_order([case for case in mine if not case.wait])]
    for case in mine:
        if case.wait:
            TorchRunning(case).start().finish()
    OWN_ORDER.shuffle(flying)
    return flying


def in_own_order(cases: list[Case]) -> list[Case]:
    """Shuffled, but that the unnamed ones of a set stay in their order."""
    shuffled = list(cases)
    OWN_ORDER.shuffle(shuffled)
    unnamed = {
        number: iter([c for c in cases if c.name is None and c.process_set.process_set_id == number])
        for number in {case.process_set.process_set_id for case in cases}
    }
    return [case if case.name else next(unnamed[case.process_set.process_set_id]) for case in shuffled]


def ranks_sets(programs: int, hops: int) -> list[list[int]]:
    """Returns the numbers of all sets, by program."""
    hvd.init()
    OWN_ORDER.seed(hvd.rank())
    ids = []
    for seed in range(programs):
        try:
            ids.append(Program(seed, hops).run())
        except Exception:
            print(f"in program {seed}")
            raise
    return ids


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_random_sets(run_ranks, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    arguments = [PROGRAMS, 0 if transport == "shm" else RANKS]
    results = run_ranks(RANKS, ranks_sets, arguments, env=env, timeout=60 + PROGRAMS // 5)
    assert all(ids == results[0] for ids in results)
    assert sum(map(len, results[0])) > PROGRAMS
