"""The decisions of the elastic driver: which workers there are, and who is in a generation."""

import pytest
from driven_job import Job
from hypothesis import given
from hypothesis import strategies as st

from horovod.elastic.driver.decisions import End, Limits, Notify
from horovod.elastic.driver.numbering import Candidate, number
from horovod.elastic.driver.reliability import COOLDOWN, PATIENCE


def test_the_first_generation_has_all_ranks():
    job = Job(Limits(4, 2), {"a": 4})
    assert job.living == dict.fromkeys(range(4), "a")
    job.ready(2, 0, 1)
    assert not job.forms
    job.ready(3)
    assert job.ranks() == {0: 0, 1: 1, 2: 2, 3: 3}


def test_survivors_go_on_at_once_and_a_newcomer_takes_the_free_rank():
    job = Job(Limits(4, 2), {"a": 4})
    job.ready()
    job.dies(1)
    assert 4 in job.living and len(job.forms) == 1
    job.ready(0, 2)
    assert len(job.forms) == 1  # rank 3 has not come
    job.ready(3)
    assert job.ranks() == {0: 0, 2: 2, 3: 1}
    assert not job.notices
    job.ready(4)
    assert job.notices == [Notify(added=True, removed=False)]
    job.ready(0, 2, 3)
    assert job.ranks() == {0: 0, 2: 2, 3: 1, 4: 3}


def test_a_spare_takes_the_place_at_once():
    job = Job(Limits(4, 2, spares=1), {"a": 4})
    assert len(job.living) == 5
    job.ready()
    assert job.ranks() == {0: 0, 1: 1, 2: 2, 3: 3}
    job.dies(1)
    assert 5 in job.living  # a new spare
    job.ready(0, 2, 3)
    assert job.ranks() == {0: 0, 2: 2, 3: 3, 4: 1}
    assert not job.notices and not job.kills


def test_fewer_than_the_fewest_wait_for_newcomers_and_not_for_ever():
    job = Job(Limits(3, 3, patience=60.0), {"a": 3})
    job.ready()
    job.dies(0)
    job.ready(1, 2)
    assert len(job.forms) == 1
    job.later(59)
    assert job.end is None
    job.ready(3)
    assert job.ranks() == {1: 1, 2: 2, 3: 0}
    job.dies(3)
    job.ready(1, 2)
    job.later(61)
    assert job.end == End(137, "for 60 s there were too few workers: 2 of at least 3")


def test_the_job_ends_when_all_have_finished():
    job = Job(Limits(2, 1, spares=1), {"a": 2})
    job.ready()
    job.dies(0, status=0)
    assert job.end is None and len(job.living) == 2
    job.dies(1, status=0)
    assert job.end == End(0, "")


def test_after_a_finish_a_death_is_not_made_good():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.dies(0, status=0)
    job.dies(1)
    assert job.end == End(0, "") and not job.living


@pytest.mark.parametrize("is_first", [False, True])
def test_an_error_beside_a_finish_is_the_end_of_the_job(is_first):
    """Such as that of a rank which could not save the model."""
    job = Job(Limits(3, 1), {"a": 3})
    job.ready()
    for worker, status in ((2, 7), (0, 0)) if is_first else ((0, 0), (2, 7)):
        job.dies(worker, status=status)
    assert job.end is None
    job.dies(1, status=0)
    assert job.end == End(7, "rank 2 has failed, and the others have ended in good order")


def test_an_error_that_a_later_generation_has_made_good_does_not_count():
    job = Job(Limits(3, 1), {"a": 3})
    job.ready()
    job.dies(2, status=7)
    job.ready(0, 1)
    job.dies(0, status=0)
    job.dies(1, status=0)
    job.dies(3, status=1)  # a newcomer, for whom nobody waits
    assert job.end == End(0, "")


def test_those_who_have_not_finished_may_go_on_alone():
    job = Job(Limits(3, 2), {"a": 3})
    job.ready()
    job.dies(0, status=0)
    job.ready(1, 2)
    assert job.ranks() == {1: 1, 2: 0}


def test_too_few_who_have_not_finished_are_a_failure():
    job = Job(Limits(3, 3), {"a": 3})
    job.ready()
    job.dies(0, status=0)
    job.ready(1, 2)
    why = "a worker has ended with exit status 0, and of those who still trained 2 of at least 3 are left"
    assert job.end == End(1, why)


def test_whom_a_death_has_kept_from_finishing_may_finish():
    job = Job(Limits(3, 3), {"a": 3})
    job.ready()
    job.dies(0, status=0)
    job.dies(1)
    job.ready(2)
    assert job.ranks() == {2: 0}
    job.dies(2, status=0)
    assert job.end == End(0, "")


def test_the_status_is_that_of_the_first_who_failed_by_itself():
    job = Job(Limits(4, 1, grace=5.0), {"a": 4})
    job.ready()
    job.driver.on_holding(0)
    job.driver.on_stopped(3, "it does nothing", job.now)
    for worker, status in ((3, 137), (1, 7), (0, 1), (2, 143)):
        job.dies(worker, status=status)
    assert job.end == End(7, "no worker is left that has the state of the training")


def test_when_nobody_has_the_state_the_job_ends_unless_it_is_on_disk():
    for is_durable in (False, True):
        job = Job(Limits(2, 1, is_durable=is_durable), {"a": 2})
        job.ready()
        job.dies(0)
        job.dies(1, status=134)
        if is_durable:
            assert job.end is None
            job.ready(2)
            assert len(job.forms) == 1  # nothing is lost by waiting for the other one
            job.ready(3)
            assert job.ranks() == {2: 0, 3: 1}
        else:
            assert job.end is not None and job.end.status == 137
            assert "none has come to train in a function with @hvd.elastic.run" in job.end.reason


@pytest.mark.parametrize(
    ("status", "seconds", "ends"), [(1, 1.0, True), (137, 1.0, False), (1, 1000.0, False)]
)
def test_a_durable_job_that_fails_by_itself_at_the_same_place_is_not_started_for_ever(status, seconds, ends):
    job = Job(Limits(2, 2, is_durable=True), {"a": 2})
    for generation in (1, 2):
        assert job.end is None
        job.ready()
        assert len(job.forms) == generation
        job.driver.on_holding(job.forms[-1].members[0].worker)
        job.later(seconds)
        for worker in list(job.living):
            if job.driver.members and worker in {each.worker for each in job.forms[-1].members}:
                job.dies(worker, status)
        for _ in range(10):
            job.later(30.0)
    assert (job.end is not None) is ends
    if ends:
        assert job.end.status == status and "again" in job.end.reason


@pytest.mark.parametrize(("status", "ends"), [(1, True), (137, False)])
def test_a_durable_job_whose_workers_fail_before_they_have_the_state_ends_at_once(status, ends):
    """Such as by a folder of checkpoints that cannot be used."""
    job = Job(Limits(2, 1, is_durable=True), {"a": 2})
    job.ready()
    for worker in (0, 1):
        job.dies(worker, status)
    assert (job.end is not None) is ends
    if ends:
        assert job.end == End(1, "the workers have failed by themselves as the training began")


def test_a_bug_before_the_training_ends_the_job():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready(0)
    job.dies(1, status=1)
    assert job.end == End(1, "a worker failed before the training began")


def test_a_worker_killed_before_the_training_is_replaced():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready(0)
    job.dies(1)
    assert job.end is None and 2 in job.living
    job.ready(2)
    assert len(job.forms) == 1


def test_a_program_that_never_joins_may_end_in_order():
    job = Job(Limits(2, 1), {"a": 2})
    job.dies(0, status=0)
    assert job.end is None
    job.dies(1, status=0)
    assert job.end == End(0, "")


def test_resets_have_a_limit():
    job = Job(Limits(3, 1, resets=1), {"a": 3})
    job.ready()
    job.dies(0)
    job.ready(1, 2)
    assert len(job.forms) == 2
    job.dies(1)
    job.ready(2)
    assert job.end == End(137, "more than --reset-limit 1 resets")


def test_hosts_come_and_go():
    job = Job(Limits(2, 1, most=4), {"a": 2})
    job.ready()
    job.hosts({"a": 2, "b": 3})
    assert sorted(job.living.values()) == ["a", "a", "b", "b"]
    job.ready(2)
    assert not job.notices  # the other one is on its way
    job.ready(3)
    assert job.notices == [Notify(added=True, removed=False)]
    job.ready()
    assert job.ranks() == {0: 0, 1: 1, 2: 2, 3: 3}
    job.hosts({"b": 3})
    assert job.notices[1:] == [Notify(added=False, removed=True)]
    assert job.living[4] == "b"
    assert not job.kills
    job.ready()
    assert job.ranks() == {3: 0, 4: 1, 2: 2}
    assert sorted(job.kills) == [0, 1]
    job.dies(0, 143)
    job.dies(1, 143)
    assert job.end is None and not job.driver.attempts


def test_a_host_that_shrinks_while_another_comes_leaves_room_for_its_workers():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.hosts({"a": 1, "b": 2})
    assert sorted(job.living.values()) == ["a", "a", "b", "b"] and not job.kills
    job.ready(2, 3)
    assert job.notices == [Notify(added=False, removed=True), Notify(added=True, removed=True)]
    job.ready()
    assert job.ranks() == {0: 0, 2: 1, 3: 2}
    assert job.kills == [1]


def test_newcomers_are_not_waited_for_long():
    job = Job(Limits(1, 1), {"a": 1})
    job.ready()
    job.hosts({"a": 3})
    job.ready(1)
    assert not job.notices
    job.later(6)
    assert job.notices == [Notify(added=True, removed=False)]


def test_a_member_that_does_not_come_is_ended():
    job = Job(Limits(3, 1, patience=30.0), {"a": 3})
    job.ready()
    job.dies(0)
    job.ready(1)
    job.later(31)
    assert job.kills == [2] and job.end is None
    job.later(1)  # until its end is heard
    job.dies(2)
    assert job.end is None and len(job.forms) == 2 and job.ranks() == {1: 0}


def test_a_silent_member_is_ended_once():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    assert job.driver.on_silent(1, job.now)[0].is_silent
    assert job.driver.on_silent(1, job.now) == []
    assert job.driver.on_silent(7, job.now) == []


def test_a_silent_member_does_not_take_the_room_of_who_is_started_in_its_place():
    job = Job(Limits(3, 2, spares=1), {"a": 3})
    job.ready()
    job.driver.on_silent(1, job.now)
    job.act()
    assert sorted(job.living) == [0, 1, 2, 3, 4]
    job.ready(0, 2)
    job.dies(1)
    assert not job.kills and job.ranks() == {0: 0, 3: 1, 2: 2}
    job.ready(4)
    assert not job.kills and sorted(job.living) == [0, 2, 3, 4]


def test_a_job_shrinks_on_one_host_and_grows_on_another_at_once():
    job = Job(Limits(3, 1, spares=1), {"a": 3})
    job.ready()
    job.hosts({"a": 1, "b": 3})
    assert sorted(job.living.values()) == ["a"] * 4 + ["b"] * 3
    job.ready()
    assert len(job.ranks()) == 4 and 0 in job.ranks() and len(job.living) - len(job.kills) == 5
    assert set(job.kills) <= {0, 1, 2, 3}


def test_a_host_where_workers_fail_again_and_again_is_set_aside_for_a_while():
    job = Job(Limits(2, 1), {"a": 1, "b": 1})
    job.ready()
    pauses = []
    for _ in range(PATIENCE + 2):
        worker = next(each for each, host in job.living.items() if host == "b")
        pauses.append(job.dies(worker))
        if "b" not in job.living.values():
            job.later(3 * pauses[-1])
            assert "b" in job.living.values()
    assert pauses[: PATIENCE - 1] == [0.0] * (PATIENCE - 1)
    for times, pause in enumerate(pauses[PATIENCE - 1 :]):
        assert 0.5 * 2**times <= pause / COOLDOWN[0] <= 1.5 * 2**times
    assert job.living[0] == "a"


def test_a_host_that_is_lost_is_set_aside_at_once():
    job = Job(Limits(2, 1), {"a": 1, "b": 1})
    job.ready()
    assert job.dies(1, status=1, is_lost=True) > 0
    assert list(job.living.values()) == ["a"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=9
    ),
)
def test_numbers_are_kept_where_they_can_be(holders):
    taken = set()
    candidates = []
    for worker, (host, rank) in enumerate(holders):
        rank = None if rank in taken else rank
        taken.add(rank)
        candidates.append(Candidate(worker, host, rank))
    ranks = {each.worker: each.rank for each in number(candidates)}
    assert sorted(ranks.values()) == list(range(len(candidates)))
    for each in candidates:
        if each.rank is not None and each.rank < len(candidates):
            assert ranks[each.worker] == each.rank


def test_a_worker_that_leaves_in_good_order_is_no_failure():
    job = Job(Limits(3, 1), {"a": 2, "b": 1})
    job.ready()
    job.driver.on_leaving(2, job.now)
    job.act()
    job.ready(0, 1)
    assert job.ranks() == {0: 0, 1: 1}  # although its process has not ended yet
    job.dies(2, status=143)
    assert job.end is None and not job.driver.attempts
    assert "b" not in job.living.values()
    job.later(200)
    assert "b" in job.living.values()


def test_a_spare_that_is_asked_to_end_is_no_failure():
    job = Job(Limits(2, 1, most=2, spares=1), {"a": 2, "b": 1})
    job.ready()
    assert job.ranks() == {0: 0, 1: 1}
    assert job.living[2] == "b"
    assert job.dies(2, status=143, was_asked=True) == COOLDOWN[1]
    assert list(job.living.values()) == ["a", "a", "a"]  # where one would not start on a host that goes


@pytest.mark.parametrize("spares", [0, 2])
def test_a_fresh_job_starts_what_it_needs(spares):
    job = Job(Limits(2, 1, most=3, spares=spares), {"a": 1, "b": 1, "c": 1, "d": 1})
    assert len(job.living) == 3 + spares
