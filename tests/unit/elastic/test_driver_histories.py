"""The decisions of the elastic driver keep the rules through any history."""

from driven_job import Job
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.elastic.driver.decisions import Limits

_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ready"), st.integers(0, 9)),
        st.tuples(st.just("dies"), st.integers(0, 9), st.sampled_from([1, 134, 137])),
        st.tuples(st.just("hosts"), st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)),
        st.tuples(st.just("later"), st.sampled_from([0.1, 1.0, 6.0, 40.0])),
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(_EVENTS, st.integers(1, 3), st.integers(0, 2), st.one_of(st.none(), st.integers(3, 5)), st.booleans())
def test_any_history_keeps_the_rules_and_ends_well(events, fewest, spares, most, is_durable):
    job = Job(Limits(3, fewest, most, spares, patience=1000.0, is_durable=is_durable), {"a": 2, "b": 2})
    for kind, *values in events:
        if job.end is not None:
            return
        workers = sorted(job.living)
        if kind == "ready" and workers:
            job.ready(workers[values[0] % len(workers)])
        elif kind == "dies" and workers:
            job.dies(workers[values[0] % len(workers)], values[1])
        elif kind == "hosts":
            job.hosts(values[0])
        elif kind == "later":
            job.later(values[0])
        assert len(job.living) <= 20
    job.hosts({"a": 2, "b": 2})
    settles(job)


def settles(job):
    """From any state, workers that do what they are told come to train together, or the job has ended."""
    for _ in range(40):
        if job.end is not None:
            return
        job.later(120.0)
        for worker in set(job.kills) & job.living.keys():
            job.dies(worker, 143)
        job.kills.clear()
        if job.end is None:
            job.ready(*[each for each in job.living if not trains(job, each)] or [-1])
        if job.end is None and job.notices:
            job.notices.clear()
            job.ready()
    if job.end is None:
        target = min(4, job.driver.limits.most or 4)
        assert len(job.driver.members) == target
        assert len(job.living) == target + job.driver.limits.spares


def trains(job, worker):
    return worker in {each.number for each in job.driver.members}
