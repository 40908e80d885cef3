"""Workers that are asked to end leave at a commit; without their launcher, too."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elastic_job import DONE, TRAINS
from launch import MODULE, PROGRAMS, Launcher
from load import within

LEAVES = re.compile(r"leaves with status (\d+) step (\d+) worker (\d+)")


def begin(
    folder: Path, *options: str, steps: int = 100_000
) -> tuple[Launcher, subprocess.Popen[bytes], Path]:
    launcher, log = Launcher(), folder / "log"
    program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), str(steps), "never", "-1", "64", "0.01")
    command = [*MODULE, "-np", "3", "--min-np", "1", *options, *program]
    environment = {**launcher.environment, "OMP_NUM_THREADS": "1", "HVD_TEST_LOG": str(log)}
    log.touch()
    return launcher, launcher.popen(command, env=environment), log


def wait_for(condition: Callable[[str], bool], log: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + within(seconds)
    while not condition(log.read_text()):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def all_train(size: int) -> Callable[[str], bool]:
    return lambda text: (
        {int(rank) for rank, of, *_ in TRAINS.findall(text) if int(of) == size} == set(range(size))
    )


def pid_of(launcher: Launcher, worker: int) -> int:
    mark = f"HOROVOD_ELASTIC_WORKER={worker}".encode()
    for pid in launcher.survivors():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if mark in variables and b"elastic_steps.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"worker {worker} does not run")


def test_one_that_is_asked_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, steps=400)
    wait_for(all_train(3), log)
    os.kill(pid_of(launcher, 1), signal.SIGTERM)
    result = launcher.finish(job, 60)
    text = log.read_text()
    assert result.returncode == 0, result.output
    assert [(status, worker) for status, _, worker in LEAVES.findall(text)] == [("143", "1")]
    assert {int(worker): int(steps) for steps, *_, worker in DONE.findall(text)} == {0: 400, 2: 400}
    assert "rank 1 (localhost) leaves the job, as it was asked to" in result.output
    assert "generation 2: 2 ranks" in result.output and "failed" not in result.output
    launcher.wait_until_gone(5)


def test_a_job_that_is_asked_ends_at_one_commit(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, "--checkpoint-dir", str(tmp_path / "kept"))
    wait_for(all_train(3), log)
    job.send_signal(signal.SIGTERM)
    result = launcher.finish(job, 30)
    assert result.returncode == 128 + signal.SIGTERM, result.output
    left = LEAVES.findall(log.read_text())
    assert sorted(worker for *_, worker in left) == ["0", "1", "2"], log.read_text()
    assert len({step for _, step, _ in left}) == 1
    assert len(list((tmp_path / "kept").glob("checkpoint-*"))) == 1
    launcher.wait_until_gone(5)


def test_workers_without_their_launcher_save_and_end_with_a_status_of_its_own(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, "--checkpoint-dir", str(tmp_path / "kept"))
    wait_for(all_train(3), log)
    job.kill()
    wait_for(lambda text: len(LEAVES.findall(text)) == 3, log, 10)
    left = LEAVES.findall(log.read_text())
    assert {status for status, _, _ in left} == {"75"}
    assert len({step for _, step, _ in left}) == 1
    launcher.wait_until_gone(12)
    assert len(list((tmp_path / "kept").glob("checkpoint-*"))) == 1
    launcher, job, log = begin(
        tmp_path, "--checkpoint-dir", str(tmp_path / "kept"), steps=int(left[0][1]) + 5
    )
    result = launcher.finish(job, 30)
    assert result.returncode == 0, result.output
    assert min(int(step) for _, _, step, *_ in TRAINS.findall(log.read_text())[3:]) > int(left[0][1])
