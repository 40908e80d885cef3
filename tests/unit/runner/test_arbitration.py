"""What ended a job, from exits and verdicts: a table, and properties of any mixture of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.store.verdicts import MAX_REASON, Kind, Link, Verdict, from_fields, on_absent
from horovod.runner.arbitration import Cause, arbitrate
from horovod.runner.ending import Exit


def _said(observer: int, kind: Kind, culprit: int | None, other: int | None = None) -> Verdict:
    return Verdict(observer, kind, culprit, f"{observer} on {culprit}", other)


_DIED = [_said(0, Kind.DIED, 1), _said(2, Kind.DIED, 1)]
_SILENT = [_said(0, Kind.SILENT, 1), _said(2, Kind.SILENT, 1)]
_LEFT = [_said(2, Kind.LEFT, 1), _said(0, Kind.LEFT, 1)]
_BROKEN = [_said(rank, Kind.LINK, 0, 1) for rank in (2, 1, 0)]
_HUNG = [_said(rank, Kind.STALL, 1) for rank in range(3)]
_NOBODY = [_said(rank, Kind.STALL, None) for rank in range(3)]
_ABSENT = [_said(2, Kind.ABSENT, 1), _said(0, Kind.ABSENT, 1)]
_EACH_OTHER = [_said(1, Kind.SILENT, 0), _said(0, Kind.SILENT, 1)]
_ONE_WAY = [_said(0, Kind.LINK, 0, 1), _said(1, Kind.SILENT, 0)]  # rank 1 closes its links to rank 0


@pytest.mark.parametrize(
    ("exits", "verdicts", "rank", "code", "kind", "status"),
    [
        # what ended, who said what; culprit, how it ended, what is said of it, the job's status
        ([(1, -9), (0, 1), (2, 1)], _DIED, 1, -9, None, 137),
        ([(0, 1), (1, -9), (2, 1)], _DIED, 1, -9, None, 137),  # the survivor was seen first
        ([(0, 1), (1, 0), (2, 1)], _DIED, 1, 0, Kind.DIED, 1),  # os._exit(0)
        ([(1, 0), (2, 3), (0, 1)], _LEFT, 1, 0, Kind.LEFT, 3),  # sys.exit(0)
        ([(2, 1), (0, 1)], _LEFT, 1, None, Kind.LEFT, 1),  # shutdown(), and still there
        ([(2, 1), (0, 1), (1, 5)], _LEFT, 1, 5, None, 5),  # an exception; slow to end
        ([(0, 1), (2, 1)], _SILENT, 1, None, Kind.SILENT, 1),  # frozen
        ([(2, 1), (0, 1), (1, 1)], _BROKEN, 0, None, Kind.LINK, 1),
        ([(0, 4), (1, 4), (2, 4)], _HUNG, 1, None, Kind.STALL, 4),
        ([(1, 4), (0, 4), (2, 4)], _HUNG, 1, None, Kind.STALL, 4),  # the culprit came back and heard of it
        ([(2, 1), (1, 1), (0, 1)], _NOBODY, None, None, Kind.STALL, 1),
        ([(1, 0), (2, 1), (0, 1)], _ABSENT, 1, 0, Kind.ABSENT, 1),  # it left before hvd.init()
        ([(2, 1), (0, 1)], _ABSENT, 1, None, Kind.ABSENT, 1),  # late, or stopped
        ([(2, 1), (0, 1), (1, 5)], _ABSENT, 1, 5, None, 5),  # late for a reason of its own
        ([(2, 7), (1, 1)], [], 2, 7, None, 7),  # nobody knows horovod
        ([(0, 1), (1, 1)], _EACH_OTHER, 0, None, Kind.SILENT, 1),  # the verdict that came first
        ([(0, 1), (1, 1)], _ONE_WAY, 0, None, Kind.SILENT, 1),
        ([(0, 1), (1, 1), (2, -9)], [_said(0, Kind.DIED, 1), _said(1, Kind.DIED, 2)], 2, -9, None, 137),
    ],
)
def test_the_cause(
    exits: list[tuple[int, int]],
    verdicts: list[Verdict],
    rank: int | None,
    code: int | None,
    kind: Kind | None,
    status: int,
) -> None:
    all_exits = [Exit(*exit) for exit in exits]
    first = next(exit for exit in all_exits if exit.code != 0)
    cause = arbitrate(first, all_exits, verdicts)
    assert cause.rank == rank and cause.status == status
    assert (None if cause.exit is None else cause.exit.code) == code
    assert (None if cause.verdict is None else cause.verdict.kind) == kind


@pytest.mark.parametrize("verdicts", [_EACH_OTHER, _ONE_WAY])
def test_who_is_not_heard_and_complains_of_that_is_alive(verdicts: list[Verdict]) -> None:
    assert arbitrate(Exit(0, 1), [Exit(0, 1), Exit(1, 1)], verdicts).alive
    assert not arbitrate(Exit(0, 1), [Exit(0, 1), Exit(2, 1)], _SILENT).alive


_ranks = st.integers(0, 5)
_exits = st.lists(st.builds(Exit, _ranks, st.sampled_from([0, 1, 7, -9, -11])), unique_by=lambda e: e.rank)
_verdicts = st.lists(
    st.builds(_said, _ranks, st.sampled_from(Kind), st.none() | _ranks, st.none() | _ranks),
    unique_by=lambda verdict: verdict.observer,
)


def test_an_exit_of_which_nobody_knows_explains_nothing() -> None:
    exits = [Exit(0, 1), Exit(1, 0, untold="mpirun does not tell")]
    assert arbitrate(exits[0], exits, _SILENT) == Cause(1, None, _SILENT[0], 1, untold=True)


@given(_exits, _verdicts)
def test_any_mixture_has_a_cause_that_somebody_vouches_for(
    exits: list[Exit], verdicts: list[Verdict]
) -> None:
    first = next((exit for exit in exits if exit.code != 0), None)
    if first is None:
        return
    cause = arbitrate(first, exits, verdicts)
    assert cause.status != 0
    assert cause.exit is None or (cause.exit in exits and cause.exit.rank == cause.rank)
    assert cause.verdict is None or cause.verdict in verdicts
    if cause.verdict is None:
        assert cause.exit is not None and cause.exit.code != 0 and cause.status == cause.exit.status
        assert cause.rank not in {verdict.observer for verdict in verdicts}
    else:
        assert cause.rank == cause.verdict.culprit and cause.status == first.status


@given(_exits, _verdicts)
def test_who_blames_nobody_and_is_blamed_by_all_is_the_cause(
    exits: list[Exit], verdicts: list[Verdict]
) -> None:
    killed = Exit(6, -9)
    blaming = [_said(verdict.observer, Kind.DIED, 6) for verdict in verdicts]
    failing = [Exit(verdict.observer, 1) for verdict in verdicts]
    everything = [*failing, killed]
    assert arbitrate(everything[0], everything, blaming) == Cause(6, killed, None, 137)


_SOUND = [b"4", b"0", b"1", b"2", b"why"]


def test_a_verdict_is_read() -> None:
    assert from_fields(2, _SOUND, 3) == Verdict(2, Kind.LINK, 0, "why", 1, Link.DATA)
    assert from_fields(0, [b"6", b"-1", b"-1", b"0", b"\xff"], 3).culprit is None
    assert from_fields(2, on_absent([0, 1], "late"), 3) == Verdict(
        2, Kind.ABSENT, None, "late", absent=(0, 1)
    )


@pytest.mark.parametrize(
    "fields",
    [
        _SOUND[:4],
        [*_SOUND, b""],
        [*_SOUND, b"1"],
        [b"8", b"-1", b"-1", b"0", b"late", b""],
        [b"8", b"-1", b"-1", b"0", b"late", b"1 3"],
        [b"8", b"-1", b"-1", b"0", b"late", b"-1"],
        [b"0", *_SOUND[1:]],
        [b"9", *_SOUND[1:]],
        [b"4", b"3", *_SOUND[2:]],
        [b"4", b"-2", *_SOUND[2:]],
        [b"4", b"--1", *_SOUND[2:]],
        [b"4", b"", *_SOUND[2:]],
        [b"4", b"0", b"1" * 5000, *_SOUND[3:]],
        [*_SOUND[:3], b"4", b"why"],
        [*_SOUND[:4], b"x" * (MAX_REASON + 1)],
    ],
)
def test_anything_else_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(BootstrapError):
        from_fields(2, fields, 3)
