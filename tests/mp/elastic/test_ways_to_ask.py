"""Workers are asked to end by a signal of the user's choice, or by a file on their host, within --grace."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from elastic_job import DONE
from launch import Launcher
from load import within
from running_job import LEAVES, all_train, begin, pid_of, wait_for

OWN_HANDLER = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("the program's own handler", flush=True))
"""


def test_a_signal_of_the_users_choice_asks_one_worker(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, "--preemption-signal", "usr1", steps=400)
    wait_for(all_train(3), log)
    os.kill(pid_of(launcher, 1), signal.SIGUSR1)
    result = launcher.finish(job, 60)
    assert result.returncode == 0, result.output
    assert [(status, worker) for status, _, worker in LEAVES.findall(log.read_text())] == [("143", "1")]
    assert {int(worker): int(steps) for steps, *_, worker in DONE.findall(log.read_text())} == {
        0: 400,
        2: 400,
    }
    assert "rank 1 (localhost) leaves the job, as it was asked to" in result.output
    launcher.wait_until_gone(5)


@pytest.mark.parametrize("number", [signal.SIGURG, signal.SIGTERM])
def test_a_signal_of_the_users_choice_asks_the_whole_job(tmp_path: Path, number: signal.Signals) -> None:
    launcher, job, log = begin(
        tmp_path, "--checkpoint-dir", str(tmp_path / "kept"), HOROVOD_PREEMPTION_SIGNAL="SIGURG"
    )
    wait_for(all_train(3), log)
    job.send_signal(number)
    result = launcher.finish(job, 30)
    assert result.returncode == 128 + signal.SIGTERM, result.output
    assert f"{number.name}: ending all ranks" in result.output
    left = LEAVES.findall(log.read_text())
    assert sorted(worker for *_, worker in left) == ["0", "1", "2"], log.read_text()
    assert len({step for _, step, _ in left}) == 1
    assert len(list((tmp_path / "kept").glob("checkpoint-*"))) == 1
    launcher.wait_until_gone(5)


def test_a_handler_of_the_program_is_called_beside_the_chosen_signal(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OWN_HANDLER)
    path = f"{tmp_path}:{Launcher().environment['PYTHONPATH']}"
    launcher, job, log = begin(tmp_path, "--preemption-signal", "USR1", PYTHONPATH=path, steps=400)
    wait_for(all_train(3), log)
    os.kill(pid_of(launcher, 2), signal.SIGUSR1)
    result = launcher.finish(job, 60)
    assert result.returncode == 0, result.output
    assert [worker for *_, worker in LEAVES.findall(log.read_text())] == ["2"]
    assert "[2]<stdout>:the program's own handler" in result.output


def test_a_notice_on_this_host_ends_the_job_in_good_order(tmp_path: Path) -> None:
    notice = tmp_path / "notice.localhost"
    options = (
        "--preemption-file",
        str(tmp_path / "notice.{host}"),
        "--checkpoint-dir",
        str(tmp_path / "kept"),
    )
    launcher, job, log = begin(tmp_path, *options)
    wait_for(all_train(3), log)
    notice.touch()
    result = launcher.finish(job, 30)
    assert result.returncode == 128 + signal.SIGTERM, result.output
    assert f"{notice}: this host is about to go: ending all ranks" in result.output
    assert len(LEAVES.findall(log.read_text())) == 3
    assert len(list((tmp_path / "kept").glob("checkpoint-*"))) == 1
    launcher.wait_until_gone(5)


def test_the_grace_bounds_the_end_of_a_job_whose_steps_are_longer(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, "--grace", "1", seconds=60.0)
    wait_for(all_train(3), log)
    begun = time.monotonic()
    job.send_signal(signal.SIGTERM)
    result = launcher.finish(job, 20)
    assert 0.9 < time.monotonic() - begun < within(10.0)
    assert result.returncode == 128 + signal.SIGTERM and not LEAVES.search(log.read_text())
    launcher.wait_until_gone(5)


@pytest.mark.parametrize("name", ["KILL", "STOP", "SIGSEGV", "CHLD", "0", "999", "-10", "no", ""])
def test_signals_that_cannot_ask_are_refused(name: str) -> None:
    launcher = Launcher()
    words = ("-np", "1", "--min-np", "1", "--preemption-signal", name, "true")
    status, _, stderr = launcher.run(*words)
    assert status == 2 and b"--preemption-signal" in stderr and b"take one of" in stderr
    if name:
        status, _, stderr = launcher.run(*words[:4], "true", HOROVOD_PREEMPTION_SIGNAL=name)
        assert status == 2 and b"HOROVOD_PREEMPTION_SIGNAL" in stderr


def test_options_of_elastic_jobs_are_refused_in_others() -> None:
    for option in ("--preemption-signal=USR1", "--preemption-file=notice"):
        status, _, stderr = Launcher().run("-np", "1", option, "true")
        assert status == 2 and re.search(rb"--preemption-\w+: only in an elastic job", stderr)
