"""A rank that a signal has stopped when all others have ended: nobody else waits for it."""

import os
import re
import signal
import time

from launch import Launcher, alone
from load import within

from horovod.bootstrap.store.remarks import never_started

STOPS = "[ $HOROVOD_RANK = 1 ] && kill -STOP $$; exit 0"


def test_the_job_ends_and_says_which_rank_was_stopped() -> None:
    launcher = Launcher()
    begun = time.monotonic()
    result = launcher.finish(launcher.start("-np", "3", "sh", "-c", STOPS), 30)
    assert result.returncode == 1, result.output
    assert 4.0 < time.monotonic() - begun < within(15.0)
    told = r"rank 1 \(localhost, pid \d+\) stopped responding \(state T: stopped\); the job's status is 1"
    assert re.search(told, result.output), result.output
    assert "a signal has stopped rank 1, and all others have ended" in result.output
    launcher.wait_until_gone(5)


def test_one_that_goes_on_soon_is_waited_for() -> None:
    launcher = Launcher()
    job = launcher.start("-np", "2", "sh", "-c", STOPS)
    deadline = time.monotonic() + within(10.0)
    while not (stopped := [pid for pid in launcher.survivors() if _state(pid) == "T"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(2)
    os.kill(stopped[0], signal.SIGCONT)
    result = launcher.finish(job, 30)
    assert (result.returncode, result.output) == (0, f"horovodrun: warning: {never_started(2)}\n")


def test_a_rank_that_works_on_after_the_others_is_left_alone() -> None:
    words = "[ $HOROVOD_RANK = 0 ] && sleep 8; exit 0"
    status, stdout, stderr = Launcher().run("-np", "2", "sh", "-c", words)
    assert (status, stdout, stderr) == (0, b"", alone(2))


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:  # it has ended meanwhile
        return ""
