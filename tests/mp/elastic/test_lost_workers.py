"""A worker is killed in each phase of an elastic job: the others go on, and one takes its place."""

import os
import statistics

import pytest
from elastic_job import Story, run
from load import within

TIMES = 20 if os.environ.get("HVD_TEST_FULL") else 1
RANKS, STEPS = 4, 20


def check(story: Story, victim: int, lost: int = 1) -> None:
    assert story.status == 0, story.output
    done = story.done
    assert victim in story.deaths, story.output
    survivors = set(range(RANKS)) - set(story.deaths)
    assert survivors <= done.keys() and len(story.deaths) == lost, story.output
    assert all(steps == STEPS for steps, _, _ in done.values()), story.output
    assert sorted(rank for _, rank, _ in done.values()) == list(range(len(done))), story.output
    assert "was killed by SIGKILL" in story.output
    assert story.output.count("was killed by SIGKILL") == lost


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("phase", ["before", "rendezvous", "sync", "step", "inside", "commit", "reset"])
def test_the_others_go_on_and_a_spare_takes_the_place(phase: str) -> None:
    gaps = []
    for time in range(TIMES):
        victim = (time + 1) % RANKS
        size = 64 << 20 if phase == "inside" else 64
        story = run(RANKS, "--min-np", "2", "--spares", "2", steps=STEPS, words=(phase, victim, size))
        if phase in ("rendezvous", "sync", "inside") and victim not in story.deaths:
            continue  # it was through before its time had come
        check(story, victim, lost=2 if phase == "reset" else 1)
        assert len(story.done) == RANKS
        gaps += story.gaps()
    if gaps:
        print(f"{phase}: median {statistics.median(gaps):.3f} s, worst {max(gaps):.3f} s of {len(gaps)}")
        assert statistics.median(gaps) < within(2.0) and max(gaps) < within(5.0), gaps


@pytest.mark.timeout(3600)
def test_who_dies_when_the_work_is_done_does_not_fail_the_job() -> None:
    for time in range(TIMES):
        story = run(RANKS, steps=STEPS, words=("shutdown", time % RANKS))
        assert story.status == 0, story.output
        assert len(story.done) == RANKS


def test_without_a_spare_the_others_go_on_at_once_and_grow_again() -> None:
    story = run(3, "--min-np", "2", steps=150, words=("step", 1, 64, 0.02))
    assert story.status == 0, story.output
    assert {worker: size for worker, (_, _, size) in story.done.items()} == {0: 3, 2: 3, 3: 3}
    assert "generation 2: 2 ranks" in story.output and "generation 3: 3 ranks" in story.output
    assert all(gap < within(2.0) for gap in story.gaps())


def test_more_resets_than_allowed_end_the_job_although_ranks_live() -> None:
    words = ("always", 1)
    story = run(3, "--min-np", "2", "--spares", "1", "--reset-limit", "1", steps=400, words=words)
    assert story.status == 137, story.output
    assert "more than --reset-limit 1 resets; the job's status is 137" in story.output


def test_too_few_workers_for_too_long_end_the_job_although_ranks_live() -> None:
    options = ("--min-np", "2", "--elastic-timeout", "2", "--blacklist-cooldown-range", "60", "61")
    story = run(2, *options, steps=400, words=("always", 1))
    assert story.status == 137, story.output
    assert "for 2 s there were too few workers: 1 of at least 2" in story.output
