"""The launcher of an elastic job has no descriptors left for the store of the next generation."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from elastic_job import DONE
from running_job import LEAVES, all_train, begin, pid_of, wait_for

NONE_LEFT = 12  # the launcher has more open already


def limit(pid: int, files: int) -> None:
    """The hard limit, too: up to that the launcher raises its own."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))


def may_raise() -> bool:
    """Whether this user can give a process more files than its hard limit."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            limit(process.pid, 64)
            limit(process.pid, 65)
            return True
        except PermissionError:
            return False
        finally:
            process.kill()


pytestmark = pytest.mark.skipif(not may_raise(), reason="this user cannot raise a hard limit again")


def test_the_next_generation_begins_when_there_are_some_again(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, steps=600)
    wait_for(all_train(3), log)
    limit(job.pid, NONE_LEFT)
    os.kill(pid_of(launcher, 1), signal.SIGKILL)
    time.sleep(3)
    limit(job.pid, 1024)
    result = launcher.finish(job, 60)
    assert result.returncode == 0, result.output
    told = "warning: generation 2 cannot begin: [Errno 24] Too many open files; it is tried again for 30 s"
    assert result.output.count(told) == 1, result.output
    assert {0, 2} <= {int(worker) for *_, worker in DONE.findall(log.read_text())}
    launcher.wait_until_gone(5)


@pytest.mark.skipif(not os.environ.get("HVD_TEST_FULL"), reason="it takes 30 s; make test-full runs it")
def test_without_any_the_job_is_saved_and_can_go_on_later(tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    launcher, job, log = begin(tmp_path, "--checkpoint-dir", folder)
    wait_for(all_train(3), log)
    limit(job.pid, NONE_LEFT)
    os.kill(pid_of(launcher, 1), signal.SIGKILL)
    result = launcher.finish(job, 60)
    assert result.returncode == 75, result.output
    assert "generation 2 cannot begin" in result.output and "the job's status is 75" in result.output
    assert [status for status, *_ in LEAVES.findall(log.read_text())] == ["143", "143"]
    assert len(list(Path(folder).glob("checkpoint-*"))) == 1
    launcher.wait_until_gone(5)
