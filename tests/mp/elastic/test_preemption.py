"""Workers that are asked to end leave at a commit; without their launcher, too."""

import os
import signal
from pathlib import Path

import pytest
from elastic_job import DONE, TRAINS
from running_job import LEAVES, all_train, begin, pid_of, wait_for


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


def test_a_spare_that_is_asked_leaves_and_none_is_started_on_its_host(tmp_path: Path) -> None:
    launcher, job, log = begin(tmp_path, "--spares", "1", "--preemption-signal", "USR1", steps=300)
    wait_for(all_train(3), log)
    os.kill(pid_of(launcher, 3), signal.SIGUSR1)
    result = launcher.finish(job, 60)
    assert result.returncode == 0, result.output
    said = "worker 3 (localhost) was killed by SIGUSR1; no worker is started on that host for 60 s"
    assert said in result.output, result.output
    assert "generation 2" not in result.output and "worker 4" not in result.output, result.output
    launcher.wait_until_gone(5)


@pytest.mark.parametrize("helper", [{}, {"HVD_TEST_HELPER": "1"}], ids=["", "helper"])
def test_a_job_that_is_asked_ends_at_one_commit(tmp_path: Path, helper: dict[str, str]) -> None:
    """What the workers have forked, such as loaders of data, does not get the signal that asks them."""
    launcher, job, log = begin(tmp_path, "--checkpoint-dir", str(tmp_path / "kept"), seconds=0.1, **helper)
    wait_for(all_train(3), log)
    job.send_signal(signal.SIGTERM)
    result = launcher.finish(job, 30)
    assert result.returncode == 128 + signal.SIGTERM, result.output
    left = LEAVES.findall(log.read_text())
    assert sorted(worker for *_, worker in left) == ["0", "1", "2"], log.read_text()
    assert len({step for _, step, _ in left}) == 1
    assert len(list((tmp_path / "kept").glob("checkpoint-*"))) == 1
    launcher.wait_until_gone(5)


@pytest.mark.parametrize("helper", [{}, {"HVD_TEST_HELPER": "1"}], ids=["", "helper"])
def test_workers_without_their_launcher_save_and_end_with_a_status_of_its_own(
    tmp_path: Path, helper: dict[str, str]
) -> None:
    launcher, job, log = begin(tmp_path, "--checkpoint-dir", str(tmp_path / "kept"), seconds=0.1, **helper)
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
