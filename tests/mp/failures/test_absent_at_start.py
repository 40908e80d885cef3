"""A rank that does not come through hvd.init() is named by the launcher, whoever gives up first."""

import math
import re
import sys
import time

import pytest
from launch import Job, Launcher
from load import within

import horovod.torch as hvd

FULL = pytest.mark.full
WHO = r"horovodrun: rank 1 \(localhost, pid \d+\) "


@pytest.mark.parametrize(
    ("transport", "misdeed"),
    [
        ("shm", "leave"),
        ("tcp", "leave-late"),
        pytest.param("tcp", "leave", marks=FULL),
        pytest.param("shm", "leave-late", marks=FULL),
    ],
)
def test_a_rank_that_ends_before_init_ends_the_job_at_once(transport: str, misdeed: str) -> None:
    begin = time.monotonic()
    job = Job(4, "absent_at_start.py", misdeed, env={"HOROVOD_TRANSPORT": transport})
    result = job.finish(within(30))
    assert time.monotonic() - begin < within(15)  # the start timeout is 30 s
    headline = "ended with exit status 0 and did not come to hvd.init(); the job's status is 1"
    assert re.search(f"^{WHO}{re.escape(headline)}$", result.output, re.MULTILINE), result.output
    assert re.search("rank 1 ended with exit status 0 and did not come to hvd.init", result.output)
    assert "failed first" not in result.output
    assert result.returncode == 1 and job.survivors() == []


@pytest.mark.parametrize(
    ("transport", "misdeed"),
    [
        ("tcp", "sleep"),
        ("shm", "stop"),
        ("shm", "stop-once-known"),
        ("tcp", "stop-once-known"),
        pytest.param("shm", "sleep", marks=FULL),
        pytest.param("tcp", "stop", marks=FULL),
    ],
)
def test_a_rank_that_is_late_is_named(transport: str, misdeed: str) -> None:
    state = "" if misdeed == "sleep" else " (state T: stopped)"
    reason = "no link to rank 1 within" if misdeed == "stop-once-known" else "rank 1 never arrived"
    env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_START_TIMEOUT": str(within(2))}
    job = Job(3, "absent_at_start.py", misdeed, env=env)
    result = job.finish(within(60))
    headline = f"did not come through hvd.init() in time{state}; the job's status is 1"
    assert re.search(f"^{WHO}{re.escape(headline)}$", result.output, re.MULTILINE), result.output
    assert reason in result.output and "failed first" not in result.output
    stack = r'\[1\]<stderr>:  File ".*absent_at_start.py", line \d+ in <lambda>'
    assert bool(re.search(stack, result.output)) == (misdeed == "sleep"), result.output
    assert result.returncode == 1 and job.survivors() == []


def test_a_late_rank_that_shows_no_stack_is_said_to_live() -> None:
    """It is no Python yet, and it is one that has not imported us."""
    late = 'if [ "$HOROVOD_RANK" = 1 ]; then exec sleep 100; fi; exec "$0" -c "$1"'
    program = "import plain_horovod as hvd; hvd.init()"
    options = ("-np", "2", "--start-timeout", str(math.ceil(within(2))), "sh", "-c", late)
    status, _, stderr = Launcher().run(*options, sys.executable, program)
    said = rb"process \d+ shows no stacks; sleep is in state S \(sleeping\)"
    assert status == 1 and re.search(said, stderr), stderr.decode()
    assert b"did not come through hvd.init() in time; the job's status is 1" in stderr


UNWATCHED = {
    "all-stop": (
        f"{WHO}did not come through hvd.init\\(\\) in time \\(state T: stopped\\)",
        "rank 1 never arrived",
    ),
    "all-stop-once-known": (
        r"horovodrun: not all ranks came through hvd.init\(\)",
        "ranks 0, 1, 2 have arrived, and made no links",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "misdeed"),
    [
        ("shm", "all-stop"),
        ("tcp", "all-stop-once-known"),
        pytest.param("tcp", "all-stop", marks=FULL),
        pytest.param("shm", "all-stop-once-known", marks=FULL),
    ],
)
def test_the_launcher_ends_a_start_that_no_rank_watches(transport: str, misdeed: str) -> None:
    headline, reason = UNWATCHED[misdeed]
    seconds = within(2)
    begin = time.monotonic()
    job = Job(
        3,
        "absent_at_start.py",
        misdeed,
        env={"HOROVOD_TRANSPORT": transport, "HOROVOD_START_TIMEOUT": str(seconds)},
    )
    result = job.finish(within(60))
    assert time.monotonic() - begin < seconds + within(15)
    assert re.search(f"^{headline}; the job's status is 1$", result.output, re.MULTILINE), result.output
    assert f"in {seconds:g} s {reason}, and no rank says why" in result.output
    assert ("stopped (state T): ranks 0, 1, 2" in result.output) == (misdeed != "all-stop"), result.output
    assert result.returncode == 1 and job.survivors() == []


@pytest.mark.full
def test_who_waits_behind_the_neighbours_of_a_frozen_rank_is_not_blamed() -> None:
    """Rank 4 has no link to rank 1, and less time left than those who have."""
    env = {"HOROVOD_TRANSPORT": "shm", "HOROVOD_START_TIMEOUT": str(within(10))}
    job = Job(12, "absent_at_start.py", "stop-once-known", str(within(5)), env=env)
    result = job.finish(within(120))
    headline = "did not come through hvd.init() in time (state T: stopped); the job's status is 1"
    assert re.search(f"^{WHO}{re.escape(headline)}$", result.output, re.MULTILINE), result.output
    assert result.returncode == 1 and job.survivors() == []


def ranks_leave_at_once(starts: int) -> None:
    for _ in range(starts):
        hvd.init()
        hvd.shutdown()


@pytest.mark.parametrize(
    ("transport", "hosts"),
    [("auto", None), ("tcp", None), ("auto", [0, 0, 1]), ("auto", [0, 0, 0, 1]), ("auto", [0, 1, 0, 1])],
)
def test_whoever_leaves_right_after_its_start_disturbs_nobodys_start(
    run_ranks, transport: str, hosts: list[int] | None
) -> None:
    size = len(hosts) if hosts else 4
    run_ranks(size, ranks_leave_at_once, [25], env={"HOROVOD_TRANSPORT": transport}, hosts=hosts)
