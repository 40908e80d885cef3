"""Executors that are killed, and jobs that are cancelled. For the figures of ten kills each:

HVD_TEST_KILLS=10 pytest tests/spark/test_spark_kills.py -rP
"""

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import spark_programs as programs
from executors import Running, executor_of, wait_until_gone
from load import within

import horovod.spark

TIMES = int(os.environ.get("HVD_TEST_KILLS", "1"))
TELL_SECONDS, GO_ON_SECONDS = 4.0, 6.0


def start() -> tuple[Running, list[psutil.Process]]:
    """A job of two ranks that work."""
    job = Running(lambda out: horovod.spark.run(programs.exchanges, num_proc=2, stdout=out))
    return job, job.wait_for(2)


def test_a_killed_executor_is_named(session: Any) -> None:
    took = [told_after() for _ in range(TIMES)]
    print(f"run: median {statistics.median(took):.2f} s, worst {max(took):.2f} s, {TIMES} kills")
    assert max(took) < within(TELL_SECONDS)


def told_after() -> float:
    """Seconds until a job ends with an error that names the executor that was killed."""
    job, ranks = start()
    family = [*ranks, *(each for rank in ranks for each in rank.parents()[:1])]
    victim = executor_of(ranks[0])
    number = victim.cmdline()[victim.cmdline().index("--executor-id") + 1]
    victim.kill()
    begin = time.monotonic()
    error = job.finish()
    seconds = time.monotonic() - begin
    assert isinstance(error, RuntimeError), error
    assert f"on executor {number} of 127.0.0.1: ExecutorLostFailure" in str(error), error
    assert "Command exited with code 137" in str(error), error
    wait_until_gone(family)
    return seconds


def test_a_cancelled_job_leaves_no_process(session: Any) -> None:
    job, ranks = start()
    family = [*ranks, *(each for rank in ranks for each in rank.parents()[:1])]
    session.sparkContext.cancelAllJobs()
    error = job.finish()
    assert isinstance(error, RuntimeError) and "cancel" in str(error).lower(), error
    wait_until_gone(family)


def test_an_elastic_job_goes_on(session: Any, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    limits = {"num_proc": 2, "min_num_proc": 1, "max_num_proc": 2}
    arguments = [str(stop)]
    job = Running(
        lambda out: horovod.spark.run_elastic(programs.trains_until, arguments, stdout=out, **limits)
    )
    took = []
    for _ in range(TIMES):
        step = job.wait_for_step(2)
        victim = step.ranks[-1]
        executor_of(psutil.Process(victim)).kill()
        begin = time.time()
        took.append(job.wait_for_step(1, without=victim).time - begin)
    job.wait_for_step(2)
    stop.touch()
    results = job.finish(60)
    print(f"run_elastic: median {statistics.median(took):.2f} s, worst {max(took):.2f} s, {len(took)} kills")
    assert [result[:2] for result in results] == [(0, 2), (1, 2)], results
    assert max(took) < within(GO_ON_SECONDS)
    numbers = [step.number for step in job.steps()]
    assert all(b - a in (0, 1) for a, b in itertools.pairwise(numbers)), numbers  # no commit is lost
