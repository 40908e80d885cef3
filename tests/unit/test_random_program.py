"""The programs of ``make programs``, and what counts as a fault of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import random_program as acts
from hypothesis import given
from hypothesis import strategies as st
from random_program import EVERYBODY, Act, Operation, make_program
from rank_server import Ended
from run_programs import different, judge

SEEDS = st.integers(0, 2**32)
MANY = range(300)


def batches_of(deed: acts.Deed) -> Iterator[acts.Batch]:
    """All batches of an act's deed."""
    if isinstance(deed, acts.Steps):
        yield from deed.batches
    if isinstance(deed, acts.Join):
        yield deed.batch


def operations_of(act: Act) -> list[Operation]:
    return [*act.beside, *(operation for batch in batches_of(act.deed) for operation in batch)]


@given(SEEDS)
def test_a_seed_gives_one_program(seed: int) -> None:
    assert make_program(seed) == make_program(seed)


@given(SEEDS)
def test_a_name_is_in_flight_once(seed: int) -> None:
    for act in make_program(seed).acts:
        names = [operation.name for operation in operations_of(act) if operation.name]
        assert len(names) == len(set(names))


@given(SEEDS)
def test_sets_are_there_when_they_are_used(seed: int) -> None:
    program = make_program(seed)
    size, sets = len(program.hosts), {EVERYBODY: tuple(range(len(program.hosts)))}
    for act in program.acts:
        if isinstance(act.deed, acts.RemoveSet):
            del sets[act.deed.members]
        assert all(operation.members in sets for operation in operations_of(act))
        if isinstance(act.deed, acts.AddSet):
            assert act.deed.ranks not in sets.values() and set(act.deed.ranks) < set(range(size))
            sets[act.deed.members] = act.deed.ranks


@given(SEEDS)
def test_what_has_no_name_is_started_by_one_thread(seed: int) -> None:
    for act in make_program(seed).acts:
        if isinstance(act.deed, acts.Steps) and act.deed.threads > 1:
            assert all(operation.name for batch in act.deed.batches for operation in batch)


@given(SEEDS)
def test_every_step_has_a_batch_and_every_rank_a_part(seed: int) -> None:
    program = make_program(seed)
    for act in program.acts:
        if isinstance(act.deed, acts.Steps):
            assert set(act.deed.order) <= set(range(len(act.deed.batches)))
        if isinstance(act.deed, acts.Training):
            assert set(act.deed.order) <= set(range(len(act.deed.sizes)))
        if isinstance(act.deed, acts.Join):
            assert len(act.deed.counts) == len(program.hosts)


@given(SEEDS, st.sets(st.integers(0, 9)))
def test_some_acts_of_a_program_are_a_program(seed: int, kept: set[int]) -> None:
    program = make_program(seed)
    assert program.only(sorted(kept)).acts == tuple(act for act in program.acts if act.number in kept)
    assert program.only(None) == program


def test_programs_have_everything() -> None:
    programs = [make_program(seed) for seed in MANY]
    deeds = {type(act.deed) for program in programs for act in program.acts}
    assert deeds == set(acts.Deed.__args__)
    operations = [o for program in programs for act in program.acts for o in operations_of(act)]
    assert {(o.kind, o.dtype, o.op) for o in operations} >= set(acts.operations.table())
    assert {o.members == EVERYBODY for o in operations} == {True, False}
    assert {(program.hosts, program.environment["HOROVOD_TRANSPORT"]) for program in programs} == set(
        acts.WIRINGS
    )


def test_a_program_is_told_act_by_act() -> None:
    program = make_program(1)
    assert str(program).count("\n  act ") == len(program.acts)


def ended(folder: Path, output: str = "", **known: object) -> Ended:
    """Of a job of two ranks; rank 0 has written ``output``."""
    (folder / "0.out").write_text(output)
    return Ended(folder, 2, **{"statuses": [0, 0], "hanging": [], "left": [], **known})


@pytest.mark.parametrize(
    ("known", "output", "counts_as"),
    [
        ({}, "", ""),
        ({"crashed": True, "statuses": []}, "", "crashes"),
        ({"statuses": [-11, 1]}, "UNEXPECTED ERROR", "crashes"),
        ({"statuses": [1, 1]}, "WRONG RESULT in act 1", "wrong results"),
        ({"statuses": [1, -9], "hanging": [1]}, "WRONG RESULT in act 1", "wrong results"),
        ({"statuses": [1, -9], "hanging": [1]}, "Traceback", "unexpected errors"),
        ({"statuses": [-9, -9], "hanging": [0, 1]}, "", "hangs"),
        ({"left": ["sleep 9"]}, "", "left behind"),
    ],
)
def test_a_job_counts_as_its_first_cause(tmp_path: Path, known: dict, output: str, counts_as: str) -> None:
    assert judge(ended(tmp_path, output, **known)) == counts_as


def test_ranks_must_hold_the_same_where_both_know_of_it() -> None:
    alike = [{"told": {"all": {"0 a": "x", "0 b": "y"}}}, {"told": {"all": {"0 a": "x"}}}]
    assert different(alike) == ""
    assert "0 b" in different([*alike, {"told": {"all": {"0 b": "z"}}}])
