"""The table of all operations as cases on process sets, which every framework's test_*matrix.py runs."""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import reference
from operations import Case, Running, table

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


def windows(process_sets: Sequence[Any], sizes: int, transport: str) -> list[list[Case]]:
    """The whole table on every one of the sets, in parts; the same rows on all ranks."""
    hops = [0 if transport == "shm" or s.size() < 3 else s.size() for s in process_sets]
    columns = [cases_on(s, sizes, at) for s, at in zip(process_sets, hops, strict=True)]
    parts = []
    for start in range(0, len(columns[0]), WINDOW):
        rows = zip(*[column[start : start + WINDOW] for column in columns], strict=True)
        parts.append([case for row in rows for case in row])
    return parts


def run_table(
    hvd: Any, sizes: int, run: Callable[[int, list[Case], random.Random], Iterable[Running]]
) -> dict[str, str]:
    """The whole table on all process sets of a job; returns, by set, a digest of what must be equal.

    Args:
        hvd: the adapter.
        sizes: how many shapes each row is run with.
        run: starts a window of cases, given its number, in an order of this rank.
    """
    own_sets = [hvd.ProcessSet(members) for members in sets_of(int(os.environ.get("HOROVOD_SIZE", "1")))]
    hvd.init(process_sets=own_sets)
    mine = [s for s in [hvd.global_process_set, *own_sets] if s.included()]
    order = random.Random(hvd.rank())
    results: dict[str, list[np.ndarray]] = {str(s.ranks): [] for s in mine}
    for number, cases in enumerate(windows(mine, sizes, os.environ.get("HOROVOD_TRANSPORT", "auto"))):
        for running in run(number, cases, order):
            got = running.finish()
            if running.plan.everywhere:
                results[str(running.case.process_set.ranks)] += got
    return {members: reference.digest(arrays) for members, arrays in results.items()}


def run_window(window: list[Running], order: random.Random) -> list[Running]:
    """Starts all, and returns them; among those that do not wait in an order of this rank."""
    flying = [running for running in window if not running.case.wait]
    order.shuffle(flying)
    half = len(flying) // 2
    for running in [*flying[:half], *(r for r in window if r.case.wait), *flying[half:]]:
        running.start()
    return window


def sets_of(ranks: int) -> list[list[int]]:
    """Two that overlap, and one of a single rank; of those that differ from all ranks."""
    sets = [list(range(ranks - 1)), list(range(1, ranks)), [ranks - 1]]
    return [s for i, s in enumerate(sets) if s and len(s) < ranks and s not in sets[:i]]


def check_digests(outcomes: list[dict[str, str]]) -> None:
    """Each rank's digests by set must be those of all the set's members."""
    for members in {key for outcome in outcomes for key in outcome}:
        digests = {outcome[members] for outcome in outcomes if members in outcome}
        assert len(digests) == 1, f"the ranks {members} hold different bits"
