"""Jobs of a process that has closed its streams, has blocked signals, or learns nothing of its children."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import MODULE, Launcher
from rank_scripts import rank_script, read_until

_BLOCKS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, map(int, sys.argv[1].split(",")))
os.execv(sys.executable, sys.argv[2:])
"""
_SPEAKS = """
import os
os.closerange(0, 3)
import plain_horovod as hvd
hvd.init()
for step in range(20):
    os.write(1, b"a word of some library")
    os.write(2, b"a word of some library")
    assert hvd.allgather_object(hvd.rank()) == [0, 1]
hvd.shutdown()
"""
_CALLS = """
import os, signal, sys, time
if sys.argv[1] == "without streams":
    os.closerange(0, 3)
elif sys.argv[1] == "without statuses":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import horovod

def function(kills):
    if kills:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return int(os.environ["HOROVOD_RANK"])

try:
    told = horovod.run(function, [sys.argv[1] == "without statuses"], num_proc=2)
except RuntimeError as error:
    told = error
with open(sys.argv[2], "w") as file:
    file.write(str(told))
"""


def _blocked(job: Launcher, numbers: list[int], *words: str) -> subprocess.Popen[bytes]:
    blocking = [sys.executable, "-c", _BLOCKS, ",".join(map(str, map(int, numbers)))]
    return job.popen([*blocking, *MODULE, *words])


def test_a_launcher_that_was_started_with_the_ends_of_children_blocked_sees_them(job: Launcher) -> None:
    result = job.finish(_blocked(job, [signal.SIGCHLD], "-np", "2", "true"), 20)
    assert result.returncode == 0, result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_were_blocked_end_a_job(job: Launcher, number: int) -> None:
    script = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('ready'); time.sleep(60)"
    process = _blocked(job, [signal.SIGINT, signal.SIGTERM], "-np", "2", *rank_script(script))
    read_until(process, b"ready", 2)
    process.send_signal(number)
    result = job.finish(process, 4)  # less than the grace of ranks that hear nothing
    assert result.returncode == 128 + number, result.output


def test_a_signal_of_the_program_that_was_blocked_stays_so(job: Launcher) -> None:
    script = "print('ready'); time.sleep(0.5); print(signal.SIGUSR1 in signal.pthread_sigmask(0, ()))"
    process = _blocked(job, [signal.SIGUSR1], "-np", "2", *rank_script(script))
    read_until(process, b"ready", 2)
    process.send_signal(signal.SIGUSR1)
    result = job.finish(process, 10)
    assert result.returncode == 0 and result.output.count("True") == 2, result.output


def test_what_is_written_to_streams_that_ranks_have_closed_goes_nowhere(job: Launcher) -> None:
    status, _, errors = job.run("-np", "2", sys.executable, "-c", _SPEAKS)
    assert status == 0, errors.decode()


@pytest.mark.parametrize("how", ["without streams", "within a shell", "without statuses"])
def test_a_function_is_run_by_any_process(job: Launcher, tmp_path: Path, how: str) -> None:
    told = tmp_path / "told"
    words = [sys.executable, "-c", _CALLS, how, str(told)]
    if how == "within a shell":
        words = ["sh", "-c", f"exec {shlex.join(words)} <&- >&- 2>&-"]
    assert job.end_within(job.popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), 30) == 0
    said = told.read_text()
    if how == "without statuses":  # of a launcher that is killed
        assert said.startswith("horovod.run: the launcher has ended without telling of any results")
    else:
        assert said == "[0, 1]"
    job.wait_until_gone(3.0)
