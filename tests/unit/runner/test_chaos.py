"""The faults that users bring about in an elastic job to try it."""

import itertools
import signal

import pytest

from horovod.runner.elastic.chaos import parse


def test_each_period_has_one_fault_at_a_moment_of_its_own():
    chaos = parse("kill:every=20s")
    assert chaos.number == signal.SIGKILL
    hits, now = [], 100.0
    while now < 500:
        if chaos.choose([0, 1, 2], now) is not None:
            hits.append(now)
        now += 0.5
    assert 18 <= len(hits) <= 28
    assert len({round(later - earlier, 1) for earlier, later in itertools.pairwise(hits)}) > 3


def test_it_takes_the_rank_that_was_named_and_no_other():
    chaos = parse("stop:every=2,rank=1")
    assert chaos.number == signal.SIGSTOP
    chaos.choose([0], 0.0)
    assert chaos.choose([0, 2], 10.0) is None
    assert chaos.choose([0, 1], 20.0) == 1


def test_the_last_rank_with_the_state_is_spared():
    chaos = parse("kill:every=1s")
    chaos.choose([0], 0.0)
    assert [chaos.choose([3], moment) for moment in (2.0, 4.0, 6.0)] == [None] * 3


def test_a_rank_that_has_just_come_is_none_to_go_on_from():
    chaos = parse("kill:every=1s")
    hits = [chaos.choose([0, 1, 2], float(moment), holders=[1]) for moment in range(40)]
    assert set(hits) == {None, 0, 2}


def test_a_fault_that_cannot_be_says_why_once():
    alone, absent, late, busy = (parse(f"kill:every=2s{rank}") for rank in ("", ",rank=7", "", ""))
    for chaos, ranks in ((alone, [0]), (absent, [0, 1]), (late, []), (busy, [0, 1])):
        chaos.choose(ranks, 0.0)
        assert chaos.excuse() == ""
        for moment in (4.0, 8.0):
            chaos.choose(ranks, moment)
    assert alone.excuse() == "the only rank has the state of the training, and is spared"
    assert absent.excuse() == "there is no rank 7"
    assert late.excuse(is_over=True).endswith("before the first fault, 1 to 2 s after its beginning")
    assert [chaos.excuse(is_over=True) for chaos in (alone, absent, late, busy)] == [""] * 4


def test_nothing_is_made_up_for():
    """While no rank trains, as at the start, no faults gather that all come at once."""
    chaos = parse("kill:every=1s")
    assert [chaos.choose([], float(moment)) for moment in range(10)] == [None] * 10
    assert [chaos.choose([0, 1], 10.0 + step / 10) for step in range(5)].count(None) >= 4


@pytest.mark.parametrize(
    "text",
    ["", "kill", "kill:20s", "kill:every=0", "burn:every=2s", "kill:every=2s,x=1", "kill:every=2s,rank=-1"],
)
def test_what_is_no_fault(text):
    with pytest.raises(ValueError, match="is no fault; write for example kill:every=20s"):
        parse(text)
