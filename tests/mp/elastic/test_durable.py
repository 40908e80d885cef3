"""All workers are killed at once, again and again: the job goes on from its folder, and nothing is lost that
was complete.
"""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from launch import PROGRAMS, Launcher, command_line
from load import within

from horovod.elastic.checkpoint import history, layout
from horovod.elastic.checkpoint.folder import opened
from horovod.elastic.checkpoint.formats import ArrayFormat
from horovod.elastic.checkpoint.reader import newest

TIMES = 7 if os.environ.get("HVD_TEST_FULL") else 1
KILLS = 20 if os.environ.get("HVD_TEST_FULL") else 2
BEGINS = re.compile(r"begins at step (\d+) with (\d+) ranks")
STEPS = "durable_steps.py"
TORCH = "durable_torch.py"
# Large tensors written by all ranks, too, where there is time for it.
BOTH = [(), pytest.param(("shard",), marks=pytest.mark.full)]
TOLD = re.compile(r"(begins|commits) (\d+) ([0-9a-f]{64})")


class DurableJob:
    """A job with a folder, of which the launcher is told, or only the program has the name."""

    def __init__(
        self, folder: Path, ranks: int, *words: object, program: str = STEPS, is_told: bool = True
    ) -> None:
        self.launcher = Launcher()
        self.program = program.encode()
        command = (sys.executable, str(PROGRAMS / program), *map(str, words))
        self.process = self.launcher.start(
            *("-np", str(ranks), "--min-np", str(ranks)),
            *(("--checkpoint-dir", str(folder)) if is_told else ()),
            *("--blacklist-cooldown-range", "0.1", "0.5"),
            *command,
            OMP_NUM_THREADS="1",
            HVD_TEST_FOLDER="" if is_told else str(folder),
        )

    def workers(self) -> list[int]:
        found = []
        for pid in self.launcher.survivors():
            words = command_line(Path(f"/proc/{pid}")).split(b"\0")
            if len(words) > 1 and words[1].endswith(self.program):
                found.append(pid)
        return found

    def kill_workers(self) -> None:
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)

    def finish(self, timeout: float) -> str:
        result = self.launcher.finish(self.process, timeout)
        self.launcher.wait_until_gone(5)
        assert result.returncode == 0, result.output
        return result.output


def wait_for_checkpoint(folder: Path, number: int) -> None:
    deadline = time.monotonic() + within(30)
    while True:
        names = layout.complete(os.listdir(folder)) if folder.is_dir() else []
        if names and layout.number_of(names[0]) >= number:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_a_write(folder: Path) -> None:
    deadline = time.monotonic() + within(30)
    while not any(name.startswith("writing") for name in os.listdir(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def check_history(folder: Path, steps: int) -> None:
    """It has each step once, in order."""
    lines = history.decode((folder / layout.HISTORY).read_bytes())
    assert [line["step"] for line in lines] == list(range(steps))
    assert [line["commit"] for line in lines] == list(range(1, steps + 1))


def newest_step(folder: Path) -> int:
    """Of the newest complete checkpoint, which is whole."""
    complaints: list[str] = []
    with opened(str(folder), create=False) as place:
        step = newest(place, [ArrayFormat()], complaints.append).value("step", False)
    assert not complaints
    return int(step)


def check_folder(folder: Path, steps: int) -> None:
    """The newest checkpoint is that of the end, and nothing is left over."""
    check_history(folder, steps)
    assert newest_step(folder) == steps
    names = os.listdir(folder)
    assert len(layout.complete(names)) == 2
    assert not [name for name in names if name.startswith("writing")], names


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("words", [(), ("shard",)], ids=["alone", "sharded"])
def test_all_workers_are_killed_at_random_moments(tmp_path: Path, words: tuple[str, ...]) -> None:
    for attempt in range(TIMES):
        folder = tmp_path / str(attempt)
        job = DurableJob(folder, 3, 60, 200_000, 0.02, *words)
        newest_number, writers = 0, set()
        for _ in range(3):
            wait_for_checkpoint(folder, newest_number + 2)
            time.sleep(random.uniform(0, 0.3))
            job.kill_workers()
            newest_number = layout.number_of(layout.complete(os.listdir(folder))[0])
            writers |= {path.name for path in folder.glob("checkpoint-*/tensors-*")}
        assert writers == {f"tensors-{rank}.npz" for rank in (range(3) if words else range(1))}
        output = job.finish(120)
        begins = [int(step) for step, _ in BEGINS.findall(output)]
        assert len(begins) == 4 and begins == sorted(begins) and begins[1] > 0, output
        assert "is not used" not in output and "was not written" not in output, output
        check_folder(folder, 60)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("words", BOTH, ids=["alone", "sharded"])
def test_all_workers_are_killed_during_a_write(tmp_path: Path, words: tuple[str, ...]) -> None:
    steps = 40 + 20 * KILLS  # on a busy machine not every write is seen
    job = DurableJob(tmp_path, 3, steps, 400_000, 0.02, *words)
    cut, number, newest_steps = 0, 0, [0]
    for _ in range(KILLS):
        wait_for_checkpoint(tmp_path, number + 2)
        wait_for_a_write(tmp_path)
        time.sleep(random.uniform(0, 0.01))
        job.kill_workers()
        time.sleep(0.05)  # they are gone, and those that follow have not begun
        names = os.listdir(tmp_path)
        cut += any(name.startswith("writing") for name in names)
        number = layout.number_of(layout.complete(names)[0])
        newest_steps.append(newest_step(tmp_path))
    output = job.finish(240)
    assert [int(step) for step, _ in BEGINS.findall(output)] == newest_steps, output
    assert "is not used" not in output and "was not written" not in output, output
    print(f"\n{cut} of {KILLS} writes were cut short")
    check_folder(tmp_path, steps)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("words", BOTH, ids=["alone", "sharded"])
def test_another_rank_goes_on_with_the_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Who writes is killed, alone, with another, or another alone; then everything, horovodrun too."""
    for attempt in range(TIMES):
        folder = tmp_path / str(attempt)
        job = DurableJob(folder, 3, 80, 100_000, 0.02, *words)
        number = 0
        for kill in ("writer", "writer and another", "another", "all"):
            wait_for_checkpoint(folder, number + 3)
            time.sleep(random.uniform(0, 0.2))
            holder = json.loads((folder / layout.LOCK).read_bytes())["pid"]
            others = [pid for pid in job.workers() if pid != holder]
            victims = [holder] * ("writer" in kill) + random.sample(others, 1) * ("another" in kill)
            for pid in victims or [job.process.pid, holder, *others]:
                os.kill(pid, signal.SIGKILL)
            number = layout.number_of(layout.complete(os.listdir(folder))[0])
        output = b"".join(job.process.communicate()).decode()
        job.launcher.wait_until_gone(10)
        assert "is not used" not in output and "was not written" not in output, output
        output = DurableJob(folder, 2, 80, 100_000, 0, *words).finish(60)
        ((step, ranks),) = BEGINS.findall(output)
        assert int(step) > 0 and ranks == "2"
        check_folder(folder, 80)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("words", BOTH, ids=["alone", "sharded"])
def test_torch_goes_on_bit_by_bit(tmp_path: Path, words: tuple[str, ...]) -> None:
    kills = max(2, KILLS // 2)
    steps = 75 * kills
    job = DurableJob(tmp_path, 2, steps, *words, program=TORCH)
    number = 0
    for _ in range(kills):
        wait_for_checkpoint(tmp_path, number + 3)
        time.sleep(random.uniform(0, 0.5))
        job.kill_workers()
        number = layout.number_of(layout.complete(os.listdir(tmp_path))[0])
    output = job.finish(60 * kills)
    committed: dict[str, str] = {}
    begins = []
    for what, step, digest in TOLD.findall(output):
        if what == "commits":
            committed[step] = digest  # of the last time that this step was made
        else:
            begins.append(int(step))
            assert step == "0" or committed[step] == digest, output
    assert len(begins) == kills + 1 and begins == sorted(begins) and begins[1] > 0, output
    check_history(tmp_path, steps)


def test_another_number_of_ranks_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for ranks, steps in ((3, 10), (2, 20), (4, 30)):
        output = DurableJob(folder, ranks, steps, 1000, 0, "shard").finish(60)
        assert BEGINS.findall(output) == [(str(steps - 10), str(ranks))], output
        check_folder(folder, steps)


def test_a_second_job_in_the_folder_is_refused(tmp_path: Path) -> None:
    first = DurableJob(tmp_path, 2, 10**6, 1000, 0.05)
    wait_for_checkpoint(tmp_path, 2)
    try:
        second = DurableJob(tmp_path, 2, 10, 1000, 0)
        result = second.launcher.finish(second.process, 60)
    finally:
        os.kill(first.process.pid, signal.SIGTERM)
        first.launcher.finish(first.process, 30)
    assert result.returncode != 0
    assert "is in use by another job (process" in result.output, result.output


def test_a_folder_that_only_the_program_names_is_gone_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    job = DurableJob(folder, 2, 40, 400, 0.05, is_told=False)
    wait_for_checkpoint(folder, 3)
    job.kill_workers()
    begins = [int(step) for step, _ in BEGINS.findall(job.finish(60))]
    assert len(begins) == 2 and begins[1] > 0
    check_folder(folder, 40)
