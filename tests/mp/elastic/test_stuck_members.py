"""Members of an elastic job that do nothing any more: in a start, or when the others have done their work."""

import os
import signal
import time
from pathlib import Path

import pytest
from elastic_job import DONE
from launch import Launcher
from running_job import all_train, begin, pid_of, wait_for

# They have got their places, and do not come to the store of their generation.
STUCK = """
import os, time
from horovod.bootstrap.store.client import StoreClient
connect = StoreClient.__init__
def stuck(self, address, secret, rank, generation, timeout, *more):
    while generation == {generation} and int(os.environ["HOROVOD_ELASTIC_WORKER"]) in {workers}:
        time.sleep(1)
    connect(self, address, secret, rank, generation, timeout, *more)
StoreClient.__init__ = stuck
"""


def stuck(folder: Path, generation: int, workers: set[int]) -> str:
    (folder / "sitecustomize.py").write_text(STUCK.format(generation=generation, workers=workers))
    return f"{folder}:{Launcher().environment['PYTHONPATH']}"


def test_a_start_in_which_all_are_stuck_ends(tmp_path: Path) -> None:
    path = stuck(tmp_path, 1, {0, 1, 2})
    begun = time.monotonic()
    launcher, job, _ = begin(tmp_path, PYTHONPATH=path, HOROVOD_START_TIMEOUT="1")
    result = launcher.finish(job, 30)
    assert time.monotonic() - begun > 6.0
    assert result.returncode == 137, result.output
    assert result.output.count("it has not come through the start, and nobody says why") == 3
    assert "none has come to train in a function with @hvd.elastic.run" in result.output
    launcher.wait_until_gone(5)


@pytest.mark.slow
def test_a_launcher_that_is_stopped_while_a_worker_dies_loses_nobody_else(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, steps=300, seconds=0.02)
    wait_for(all_train(3), log)
    victim = pid_of(launcher, 1)
    os.kill(job.pid, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    time.sleep(12.0)  # longer than a store has for an answer
    os.kill(job.pid, signal.SIGCONT)
    result = launcher.finish(job, 60)
    assert result.returncode == 0 and "worker 1" in result.output + log.read_text(), result.output
    assert len(DONE.findall(log.read_text())) == 3
    launcher.wait_until_gone(5)


def test_a_stopped_member_is_ended_when_the_others_have_done_their_work(tmp_path: Path) -> None:
    stops = tmp_path / "sitecustomize.py"
    stops.write_text(
        "import os, signal, sys\n"
        "from horovod.common import basics\n"
        "shutdown = basics.shutdown\n"
        "def stop():\n"
        "    shutdown()\n"
        "    if os.environ['HOROVOD_ELASTIC_WORKER'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "basics.shutdown = stop\n"
    )
    path = f"{tmp_path}:{Launcher().environment['PYTHONPATH']}"
    launcher, job, log = begin(tmp_path, PYTHONPATH=path, steps=20)
    result = launcher.finish(job, 30)
    assert result.returncode == 0, result.output
    assert len(DONE.findall(log.read_text())) == 3
    assert "is ended: a signal has stopped it, and the job waits for it" in result.output
    launcher.wait_until_gone(5)
