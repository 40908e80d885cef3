"""The decisions of the elastic driver when workers come late, end badly or not at all, or have to move."""

import pytest
from driven_job import Job

from horovod.elastic.driver.decisions import End, Kill, Limits, Notify
from horovod.elastic.driver.driver import UNKILLABLE_SECONDS
from horovod.elastic.driver.progress import FRUITLESS, SHORT_SECONDS
from horovod.elastic.driver.reliability import MOMENT_SECONDS, PATIENCE


def test_a_late_member_that_dies_slowly_does_not_end_the_job():
    job = Job(Limits(3, 1, patience=30.0), {"a": 3})
    job.ready()
    job.dies(0)
    job.ready(1)
    job.later(31)
    assert job.kills == [2]
    job.later(0.1)  # any event before the kernel has ended it
    assert job.end is None
    job.dies(2)
    assert job.ranks() == {1: 0}


def test_the_job_goes_on_without_a_member_that_cannot_be_killed():
    job = Job(Limits(3, 1, patience=30.0), {"a": 2, "b": 1})
    job.ready()
    job.dies(0)
    job.ready(1)
    job.later(31)
    assert job.kills == [2] and not job.given_up
    due = job.driver.next_time(job.now)
    assert due <= job.now + UNKILLABLE_SECONDS
    job.later(UNKILLABLE_SECONDS)
    assert job.given_up == [2] and job.end is None
    assert job.ranks() == {1: 0}
    assert "b" not in job.living.values()  # what holds it up may hold up others, too
    assert job.driver.on_exit(2, 137, job.now) == 0.0  # at last
    job.later(100)
    assert "b" in job.living.values()


def test_a_job_that_needs_a_member_that_cannot_be_killed_ends():
    job = Job(Limits(2, 2, patience=30.0), {"a": 2})
    job.ready()
    job.ready(0)
    for _ in range(4):
        job.later(31)
    assert job.given_up == [1]
    assert job.end is not None and job.end.status == 137


def test_a_job_that_gives_up_never_ends_with_status_0():
    job = Job(Limits(2, 2, patience=30.0), {"a": 2})
    job.ready()
    job.dies(0)
    job.dies(2, status=0)  # the newcomer ends in order and has done nothing
    job.ready(1)
    job.later(31)
    assert job.end is not None and job.end.status == 137


def test_who_waits_for_a_worker_that_has_ended_in_order_is_told_at_once():
    job = Job(Limits(2, 1), {"a": 2})
    job.dies(0, status=0)
    assert job.end is None  # the other one may do without a job, too
    job.ready(1)
    assert job.end is not None and job.end.status == 1
    assert "exit status 0" in job.end.reason


def test_a_spare_that_never_comes_does_not_keep_the_first_generation():
    job = Job(Limits(2, 1, spares=1), {"a": 2})
    job.ready(0, 1)
    assert not job.forms  # it is on its way
    assert job.driver.next_time(job.now) <= job.now + 5.0
    job.later(6)
    assert job.ranks() == {0: 0, 1: 1}


def test_a_worker_for_which_there_is_room_is_not_ended_for_one_that_has_none():
    job = Job(Limits(4, 1), {"a": 3, "b": 1})
    job.ready()
    assert job.living == {0: "a", 1: "a", 2: "a", 3: "b"}
    job.dies(2)
    assert job.living[4] == "a"
    job.ready(0, 1, 3)
    assert len(job.forms) == 2
    job.hosts({"a": 2, "b": 2})
    assert job.kills == [4] and job.living[5] == "b"
    for _ in range(10):
        job.later(0.1)
    assert job.kills == [4] and len(job.living) == 5


def test_the_state_moves_when_all_hosts_change():
    job = Job(Limits(2, 2), {"a": 2})
    job.ready()
    job.hosts({"b": 2})
    assert job.notices == [Notify(added=False, removed=True)]
    job.ready(0, 1)
    assert len(job.forms) == 1
    job.ready(2, 3)
    assert job.ranks() == {0: 0, 2: 1, 3: 2}  # one that has the state gives it to the others
    assert job.kills == [1]
    assert len(job.notices) == 2
    job.ready(0, 2, 3)
    assert job.ranks().keys() == {2, 3}
    assert job.kills == [1, 0]


def test_a_worker_that_does_not_end_when_asked_is_killed():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.hosts({"a": 1})
    job.ready()
    assert job.kills == [1]
    due = job.driver.next_time(job.now)
    assert due < job.now + 30
    job.later(due - job.now)
    assert job.kills == [1, 1]
    job.later(60)
    assert job.kills == [1, 1]


def test_a_doomed_worker_does_not_keep_a_job_that_has_done_its_work():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.hosts({"a": 1})
    job.ready()
    assert job.kills == [1]
    job.dies(0, status=0)
    assert job.end == End(0, "")


def test_a_member_that_responds_again_is_not_ended():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.ready(1)
    assert job.driver.on_silent(1, job.now) == []


@pytest.mark.parametrize("says_the_newcomer", [True, False])
def test_a_newcomer_that_does_not_reach_who_has_the_state_goes_itself(says_the_newcomer):
    job = Job(Limits(2, 1), {"a": 1, "b": 1})
    job.ready()
    job.driver.on_holding(0)
    job.driver.on_holding(1)
    assert job.driver.on_silent(1, job.now, observer=0) == [
        Kill(1, True, "the other ranks have given it up: it does not respond")
    ]
    job.dies(1)
    job.ready(0)
    job.ready(2)
    job.ready(0)
    assert job.ranks() == {0: 0, 2: 1}
    pair = (0, 2) if says_the_newcomer else (2, 0)
    [kill] = job.driver.on_silent(pair[0], job.now, observer=pair[1])
    assert (
        job.kills == []
        and kill.worker == 2
        and "rank 0, which has the state" in kill.reason
        and "60 s" in kill.reason
    )
    assert job.driver.on_silent(pair[0], job.now, observer=pair[1]) == []
    job.dies(2)
    assert job.driver.on_silent(0, job.now, observer=2) == []
    job.ready(0)
    assert job.ranks() == {0: 0} and list(job.living) == [0]
    job.later(61)
    assert list(job.living) == [0, 3]


def test_a_newcomer_of_the_holder_s_host_is_started_again_at_once():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.driver.on_holding(0)
    assert job.driver.on_silent(0, job.now, observer=1)[0].worker == 1
    job.act()
    assert list(job.living) == [0, 1, 2]


def test_newcomers_that_several_do_not_reach_leave_the_others_alone():
    job = Job(Limits(4, 2), {"a": 2, "b": 2})
    job.ready()
    assert job.driver.on_apart(0, [2, 3], job.now) == []  # nobody has the state yet
    for worker in (0, 1):
        job.driver.on_holding(worker)
    job.dies(2)
    job.dies(3)
    job.ready()
    assert set(job.ranks()) == {0, 1, 4, 5}
    job.ready(4)
    assert [kill.worker for kill in job.driver.on_apart(1, [4, 5], job.now)] == [4, 5]
    assert job.driver.on_apart(0, [4, 5], job.now) == job.driver.on_apart(4, [0, 1], job.now) == []
    job.dies(5)
    job.ready(0, 1)
    assert set(job.ranks()) == {0, 1} and list(job.living) == [0, 1, 4]
    assert not job.notices  # nobody comes


def test_of_holders_that_never_reach_each_other_one_goes_at_last():
    job = Job(Limits(3, 1), {"a": 2, "b": 1})
    job.ready()
    for worker in range(3):
        job.driver.on_holding(worker)
    job.ready(commits=9)
    job.ready(2)
    assert job.driver.on_silent(2, job.now, observer=0) == []
    job.ready(0, 1)
    job.ready(2)
    assert job.driver.on_silent(2, job.now, observer=0)[0].worker == 2
    job.ready(0, 1)
    assert job.ranks() == {0: 0, 1: 1}


@pytest.mark.parametrize(("slots", "kept"), [((2, 2), 0), ((2, 3), 1), ((3, 2), 0), ((1, 3), 1)])
@pytest.mark.parametrize("observers", [(0, 1), (1, 0)])
def test_of_holders_on_two_sides_of_a_cut_the_more_go_on_or_those_of_rank_0(slots, kept, observers):
    job = Job(Limits(sum(slots), 1), {"a": slots[0], "b": slots[1]})
    job.ready()
    workers = [[worker for worker, host in job.living.items() if host == name] for name in ("a", "b")]
    for worker in range(sum(slots)):
        job.driver.on_holding(worker)
    for turn in range(2):
        job.ready(commits=9)
        killed = [
            kill.worker
            for side in observers
            for observer in workers[side]
            for kill in job.driver.on_apart(observer, workers[1 - side], job.now)
        ]
        assert killed == (workers[1 - kept] if turn else [])
    for worker in killed:
        job.dies(worker)
    job.ready(*workers[kept])
    assert set(job.ranks()) == set(workers[kept]) and job.end is None


def test_newcomers_that_have_not_got_the_state_do_not_hold_it():
    """All who had it are lost while two newcomers join: nothing is begun anew in silence."""
    for is_durable in (False, True):
        job = Job(Limits(2, 1, is_durable=is_durable), {"a": 2})
        job.ready()
        for worker in (0, 1):
            job.driver.on_holding(worker)
        job.dies(0)
        job.ready(1)
        job.ready(2)  # worker 2 has been started in the place of 0
        job.ready(1)
        assert job.ranks() == {1: 0, 2: 1}
        job.dies(1)
        assert job.end is None  # 2 may have got it by now
        job.ready(2)
        if is_durable:
            assert job.end is None
        else:
            assert job.end == End(137, "no worker is left that has the state of the training")


def test_who_has_told_that_it_has_the_state_goes_on_alone():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.dies(0)
    job.ready(1)
    job.ready(2)
    job.ready(1)
    job.driver.on_holding(2)
    job.dies(1)
    job.ready(2)
    assert job.end is None and job.ranks() == {2: 0}


def test_slow_imports_do_not_use_up_the_patience():
    job = Job(Limits(2, 1, patience=30.0), {"a": 2})
    for _ in range(10):
        job.later(20)
    assert job.end is None
    job.ready(0)
    job.later(29)
    assert job.end is None
    job.ready(1)
    assert len(job.forms) == 1


def test_those_who_are_there_do_not_wait_for_slow_imports_for_ever():
    job = Job(Limits(2, 1, patience=30.0), {"a": 2})
    job.later(100)
    job.ready(0)
    job.later(31)
    assert job.end is not None and "1 of at least 2" in job.end.reason


def test_a_job_without_hosts_ends():
    job = Job(Limits(2, 1, patience=30.0), {})
    job.later(31)
    assert job.end is not None and "0 of at least 2" in job.end.reason


@pytest.mark.parametrize("is_lost", [False, True])
def test_workers_of_a_host_that_die_together_have_failed_once(is_lost):
    job = Job(Limits(8, 1), {"a": 2, "b": 8})
    job.ready()
    job.later(1)
    pauses = []
    for worker in [each for each, host in job.living.items() if host == "b"]:
        pauses.append(job.dies(worker, is_lost=is_lost))
        job.later(0.05)
    assert sum(pause > 0 for pause in pauses) == is_lost
    assert all(pause < 2.0 for pause in pauses)
    job.later(MOMENT_SECONDS)
    assert list(job.living.values()).count("b") == 8


def test_workers_that_die_as_soon_as_they_are_started_fail_each_time():
    job = Job(Limits(2, 1), {"a": 1, "b": 1})
    job.ready()
    pauses = []
    for _ in range(PATIENCE):
        (worker,) = [each for each, host in job.living.items() if host == "b"]
        job.later(0.01)
        pauses.append(job.dies(worker))
    assert pauses[-1] > 0 and "b" not in job.living.values()


def test_a_worker_that_does_not_end_while_it_leaves_is_killed():
    job = Job(Limits(2, 1, grace=7.0), {"a": 1, "b": 1})
    job.ready()
    job.driver.on_leaving(1, job.now)
    job.act()
    job.dies(0, status=0)
    assert job.end is None
    job.later(6.9)
    assert not job.kills
    job.later(0.2)
    assert job.kills == [1]
    job.dies(1)
    assert job.end == End(0, "")


def test_a_folder_that_only_the_program_names_is_known():
    job = Job(Limits(2, 1), {"a": 2})
    job.ready()
    job.driver.on_holding(0, is_durable=True)
    job.dies(0)
    job.dies(1)
    assert job.end is None
    job.ready()
    assert len(job.forms) == 2


@pytest.mark.parametrize("dies", [True, False], ids=["an error of one rank", "a deadlock of all"])
def test_a_failure_that_comes_back_in_every_generation_ends_the_job(dies):
    job = _failing(dies, commits=lambda generation: 7)
    assert job.end is not None and job.end.status == 1
    assert len(job.forms) == FRUITLESS + 1 and f"{FRUITLESS} generations in a row" in job.end.reason


def test_a_job_that_commits_now_and_then_goes_on_in_spite_of_many_failures():
    assert _failing(True, commits=lambda generation: generation // (FRUITLESS - 1)).end is None


def test_generations_that_run_for_long_without_a_commit_are_no_sign_of_an_error():
    assert _failing(True, commits=lambda generation: 0, seconds=SHORT_SECONDS + 1).end is None


def test_hosts_that_come_and_go_are_no_failures():
    job = Job(Limits(2, 2, 3), {"a": 2})
    job.ready()
    for generation in range(4 * FRUITLESS):
        job.hosts({"a": 2, f"b{generation}": 1} if generation % 2 == 0 else {"a": 2})
        newcomers = job.living.keys() - job.ranks().keys()
        job.ready(*newcomers or [-1])
        job.later(6.0)
        assert job.notices.pop()
        job.ready()
        for worker in [each for each in job.kills if each in job.living]:
            job.dies(worker, 143)
    assert job.end is None and len(job.forms) == 4 * FRUITLESS + 1


def _failing(dies, commits, seconds=1.0):
    """A job of two ranks, of which the last one fails, or both meet an error, in each generation."""
    job = Job(Limits(2, 2, patience=1e9), {"a": 2})
    job.ready()
    job.driver.on_holding(0)
    for generation in range(4 * FRUITLESS):
        job.later(seconds)
        if dies:
            job.dies(max(job.living), 1)
        job.ready(0, commits=commits(generation))
        while len(job.living) < 2:  # the host is set aside for a while after each failure
            job.later(30.0)
        if job.end is None:
            job.ready(max(job.living), commits=0 if dies else commits(generation))
        if job.end is not None:
            break
    return job
