"""Workers are killed in each phase of an elastic job: the others go on, and one takes the place of each."""

import pytest
from elastic_job import TIMES, check_seconds, run
from load import within

RANKS, STEPS = 4, 20
EARLY = ("before", "rendezvous", "sync")  # nobody has trained yet


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("phase", [*EARLY, "step", "inside", "commit", "ahead"])
def test_the_others_go_on_and_a_spare_takes_the_place(phase: str) -> None:
    seconds = []
    for time in range(TIMES):
        victim = (time + 1) % (RANKS - 1 if phase == "ahead" else RANKS)
        size, steps = (64 << 20, 8) if phase == "inside" else (64, STEPS)
        story = run(RANKS, "--min-np", "2", "--spares", "2", steps=steps, words=(phase, victim, size))
        if phase in ("rendezvous", "sync", "inside") and victim not in story.deaths:
            continue  # it was through before its time had come
        story.check(RANKS, steps, [victim])
        assert len(story.done) == RANKS
        seconds += story.start() if phase in EARLY else story.gaps()
    check_seconds(phase, seconds)


CASCADES = {
    # The second dies when the ranks have met again.
    "reset": ("step,reset", (0, 3)),
    # At random moments of the recovery from the one before: while they meet, or synchronize.
    "recoveries": ("step,recovery,next recovery", (0, 1, 2)),
    # Who takes the place of the first dies before it has got the state.
    "newcomer": ("step,sync,next recovery", (0, 4, 1)),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASCADES)
def test_more_die_while_the_others_recover(name: str) -> None:
    phases, victims = CASCADES[name]
    seconds = []
    for time in range(TIMES):
        dead = [each if each >= RANKS else (each + time) % RANKS for each in victims]
        # The steps take longer than all that happens.
        words = (phases, ",".join(map(str, dead)), 64, 0.005)
        story = run(RANKS, "--min-np", "1", "--spares", "3", steps=STEPS * 5, words=words)
        if name == "newcomer":  # one that is through in time lives
            dead = [each for each in dead if each in story.deaths]
        story.check(RANKS, STEPS * 5, dead)
        seconds.append(max(story.gaps()))
    check_seconds(f"cascade, {name}", seconds, worst=10.0)


@pytest.mark.timeout(3600)
def test_who_dies_when_the_work_is_done_does_not_fail_the_job() -> None:
    for time in range(TIMES):
        story = run(RANKS, steps=STEPS, words=("shutdown", time % RANKS))
        assert story.status == 0, story.output
        assert len(story.done) == RANKS


def test_without_a_spare_the_others_go_on_at_once_and_grow_again() -> None:
    story = run(3, "--min-np", "2", steps=150, words=("step,late", "1,3", 64, 0.02))
    assert story.status == 0, story.output
    assert {worker: size for worker, (_, _, size) in story.done.items()} == {0: 3, 2: 3, 3: 3}
    assert "generation 2: 2 ranks" in story.output and "generation 3: 3 ranks" in story.output
    assert all(gap < within(2.0) for gap in story.gaps())


@pytest.mark.timeout(3600)
def test_fewer_than_the_fewest_wait_for_others_and_go_on() -> None:
    seconds = []
    for time in range(TIMES):
        victims = [time % 3, (time + 1) % 3]
        words = ("step,step", ",".join(map(str, victims)))
        story = run(3, "--min-np", "3", steps=STEPS, words=words)
        story.check(3, STEPS, victims)
        assert len(story.done) == 3
        seconds.append(max(story.gaps()))
    check_seconds("below --min-np and back, with the start of new processes", seconds, 5.0, 10.0)


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
