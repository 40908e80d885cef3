"""A rank that gets no more memory ends by an exception, and the launcher names it."""

import re

from launch import Job, Result
from load import within


def run_short_of_memory(when: str) -> Result:
    job = Job(3, "short_of_memory.py", when)
    result = job.finish(within(40))
    assert job.survivors() == []
    assert result.returncode == 1, result.output
    return result


def headline(result: Result) -> str:
    """The first line of the launcher's report."""
    return next(line for line in result.output.splitlines() if line.startswith("horovodrun: "))


def test_the_first_exception_of_a_thread_needs_no_memory() -> None:
    result = run_short_of_memory("operations")
    assert "ABORT" not in result.output
    assert re.match(r"horovodrun: rank 1 \(localhost, pid \d+\) ", headline(result)), result.output


def test_a_start_that_fails_for_the_memory_of_one_rank_blames_that_rank() -> None:
    result = run_short_of_memory("start")
    assert re.match(r"horovodrun: rank 1 \(localhost, pid \d+\) ", headline(result)), result.output
    assert "Cannot allocate memory" in result.output
