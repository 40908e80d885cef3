"""The start of a job as the launcher sees it: who is late at which time, and that a sound start is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.store.arrivals import Arrivals
from horovod.bootstrap.store.verdicts import Kind, Verdict

SIZE, SECONDS, SLACK = 3, 10.0, 3.0
NEVER = float("inf")


def _after(*steps: tuple[float, str, int], generation: int = 1) -> Arrivals:
    """``steps``: time, key and rank of what ranks set."""
    arrivals = Arrivals(SIZE, SECONDS)
    for time, step, rank in steps:
        arrivals.note(rank, f"{generation}/{step}/{rank}".encode(), time)
    return arrivals


def test_a_start_that_nobody_has_begun_is_never_late() -> None:
    assert _after().deadline == _after((1.0, "tuning", 0), (2.0, "mesh-again", 1)).deadline == NEVER
    assert _after().overdue(1e9) is None


@pytest.mark.parametrize(
    ("steps", "when", "culprit", "said"),
    [
        ([(1.0, "mesh", 0)], 1.0, None, "in 10 s ranks 1, 2 never arrived, and no rank says why"),
        ([(1.0, "mesh", 0), (5.0, "mesh", 2)], 1.0, 1, "in 10 s rank 1 never arrived"),
        ([(t, "mesh", t) for t in range(3)], 2.0, None, "ranks 0, 1, 2 have arrived, and made no links"),
        (
            [*((t, "mesh", t) for t in range(3)), (4.0, "linked", 1), (5.0, "linked", 0)],
            2.0,
            2,
            "rank 2 has arr",
        ),
        ([(0.0, "mesh", 0), (4.0, "mesh", 1), (5.0, "mesh", 0)], 0.0, 2, "rank 2 never arrived"),
    ],
)
def test_who_is_late(
    steps: list[tuple[float, str, int]], when: float, culprit: int | None, said: str
) -> None:
    arrivals = _after(*steps)
    deadline = when + SECONDS + SLACK
    assert arrivals.deadline == deadline and arrivals.overdue(deadline - 0.01) is None
    late = arrivals.overdue(deadline)
    assert late is not None and (late.kind, late.culprit) == (Kind.ABSENT, culprit) and said in late.reason
    assert culprit in (None, late.observer)
    assert arrivals.deadline == NEVER and arrivals.overdue(1e9) is None


def test_where_a_rank_speaks_the_launcher_does_not() -> None:
    arrivals = _after((0.0, "mesh", 0))
    arrivals.stand_down()
    assert arrivals.overdue(1e9) is None


def test_the_next_start_is_watched_anew_and_the_last_one_no_more() -> None:
    arrivals = _after((0.0, "mesh", 0))
    arrivals.stand_down()
    arrivals.note(1, b"2/mesh/1", 50.0)
    arrivals.note(2, b"1/mesh/2", 60.0)
    late = arrivals.overdue(50.0 + SECONDS + SLACK)
    assert isinstance(late, Verdict) and "ranks 0, 2 never arrived" in late.reason


@given(st.permutations([(step, rank) for rank in range(SIZE) for step in ("mesh", "linked")]))
def test_a_start_that_is_done_is_never_late(steps: list[tuple[str, int]]) -> None:
    order = sorted(enumerate(steps), key=lambda item: (item[1][0] == "linked", item[0]))
    arrivals = _after(*((float(time), step, rank) for time, (_, (step, rank)) in enumerate(order)))
    assert arrivals.deadline == NEVER and arrivals.overdue(1e9) is None
