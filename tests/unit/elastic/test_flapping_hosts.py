"""Hosts that go and come back in the listing cost the others no generation each time."""

from driven_job import Job

from horovod.elastic.driver.decisions import Limits
from horovod.elastic.driver.listing import Listing


def _flapping(limits, seconds, toggles=10):
    """A host comes and goes; all others do at once what they are told. Returns how long it was left alone."""
    job = Job(limits, {"a": 2})
    job.ready()
    held = []
    for toggle in range(toggles):
        held += job.hosts({"a": 2, "b": 2} if toggle % 2 == 0 else {"a": 2}).values()
        for _ in range(round(seconds)):
            job.later(1.0)
            if newcomers := job.living.keys() - job.ranks().keys() - set(job.kills):
                job.ready(*newcomers)
            if job.notices:
                job.notices.clear()
                job.ready()
            for worker in job.living.keys() & set(job.kills):
                job.dies(worker, 143)
    assert job.end is None
    return job, held


def test_a_host_that_comes_and_goes_is_left_alone_for_ever_longer():
    job, held = _flapping(Limits(2, 2, 4), 6.0)
    assert held == [8.0, 16.0, 32.0, 60.0]
    assert len(job.forms) <= 3
    job.hosts({"a": 2, "b": 2})
    job.later(59.0)
    assert len(job.living) == 2
    assert job.driver.next_time(job.now) == job.now + 1.0
    job.later(1.0)
    assert len(job.living) == 4  # it has stayed


def test_a_host_that_comes_back_after_long_is_used_at_once():
    job, held = _flapping(Limits(2, 2, 4), 310.0, toggles=6)
    assert held == [] and len(job.forms) == 7


def test_a_host_that_the_job_needs_is_never_left_alone():
    job = Job(Limits(2, 2), {"a": 1, "b": 1})
    job.ready()
    for _ in range(5):
        job.hosts({"a": 1})
        job.dies(max(job.living))
        job.later(2.0)
        job.hosts({"a": 1, "b": 1})
        job.later(70.0)
        assert sorted(job.living.values()) == ["a", "b"]
        job.ready()
        job.later(1.0)
    assert job.end is None and len(job.forms) == 6


def test_a_host_that_was_away_for_a_moment_keeps_its_workers_once():
    job = Job(Limits(2, 1), {"a": 1, "b": 1})
    job.ready()
    job.hosts({"a": 1})
    assert job.notices and not job.hosts({"a": 1, "b": 1})
    job.ready()
    assert len(job.ranks()) == 2 and not job.kills
    job.hosts({"a": 1})
    assert job.hosts({"a": 1, "b": 1}) == {"b": 16.0}


def test_a_host_may_have_more_and_fewer_slots_as_often_as_it_likes():
    job = Job(Limits(1, 1), {"a": 1})
    job.ready()
    assert not any(job.hosts({"a": slots}) for slots in (2, 1, 2, 1, 2))
    assert len(job.living.keys() - set(job.kills)) == 2


def test_hosts_that_are_long_gone_are_forgotten():
    listing = Listing(lambda times: 8.0 * times)
    for number in range(50):
        assert listing.see({f"spot-{number}": 4}, (), 100.0 * number) == {}
    assert len(listing._hosts) <= 5
    assert listing.see({"spot-48": 4, "spot-3": 4}, (), 5000.0) == {"spot-48": 8.0}
