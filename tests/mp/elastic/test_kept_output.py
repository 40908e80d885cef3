"""The output of elastic jobs: kept in files of ranks, and that of some ranks shown."""

import re
import sys
from pathlib import Path

from elastic_job import run
from launch import PROGRAMS, Launcher


def lines(folder: Path, own: str, stream: str = "stdout") -> list[str]:
    return (folder / own / stream).read_text().splitlines()


def test_who_takes_a_rank_writes_on_in_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = ("--min-np", "2", "--spares", "1", "--output-filename", str(folder))
    story = run(3, *options, words=("step", 1, 64, 0.01))
    assert story.status == 0, story.output
    assert not list(folder.glob("worker.*"))  # nobody has written before it had a rank
    assert {path.name for path in folder.iterdir()} >= {"rank.0", "rank.1", "rank.2"}
    dies, next_one = lines(folder, "rank.1")[1:3]
    assert dies.startswith("dies worker 1 "), lines(folder, "rank.1")
    assert re.match(r"trains as rank 1 of [23] step \d+ worker [23] ", next_one), lines(folder, "rank.1")
    for rank in range(3):
        shown = re.findall(rf"^\[{rank}\]<stdout>:(.*)$", story.output, re.MULTILINE)
        assert shown == lines(folder, f"rank.{rank}")
        assert lines(folder, f"rank.{rank}", "stderr") == []


def test_what_is_written_without_a_rank_is_kept_as_that_of_a_worker(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    (folder / "worker.0").mkdir(parents=True)
    (folder / "worker.0" / "stdout").write_text("of an earlier job\n")
    words = ("--output-filename", str(folder), "sh", "-c", "echo I am $HOROVOD_ELASTIC_WORKER; echo no >&2")
    status, stdout, stderr = Launcher().run("-np", "2", "--min-np", "2", *words)
    assert status == 0, stderr
    for worker in range(2):
        assert lines(folder, f"worker.{worker}") == [f"I am {worker}"]
        assert lines(folder, f"worker.{worker}", "stderr") == ["no"]
    assert sorted(stdout.splitlines()) == [b"[w0]<stdout>:I am 0", b"[w1]<stdout>:I am 1"]


def test_only_some_ranks_are_shown_whoever_has_them(tmp_path: Path) -> None:
    options = ("--min-np", "2", "--spares", "1", "--ranks", "1,7", "--output-filename", str(tmp_path))
    story = run(3, *options, words=("step", 1, 64, 0.01))
    assert story.status == 0, story.output
    shown = re.findall(r"^\[(\w+)\]<stdout>:(.*)$", story.output, re.MULTILINE)
    assert {rank for rank, _ in shown} == {"1"}
    assert [line for _, line in shown] == lines(tmp_path, "rank.1")
    assert lines(tmp_path, "rank.0") and lines(tmp_path, "rank.2")


def test_a_rank_that_there_can_never_be_is_refused() -> None:
    words = ("-np", "2", "--min-np", "1", "--max-np", "4", "--ranks", "4", "true")
    status, _, stderr = Launcher().run(*words)
    assert status == 2 and b"there is no rank 4, the last one is 3" in stderr


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("-np", "1", "--min-np", "1", "--output-filename", str(tmp_path / "file"), "true")
    status, _, stderr = Launcher().run(*words)
    assert status == 2 and b"--output-filename: " in stderr


def test_the_terminal_cannot_pass_from_process_to_process() -> None:
    program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), "1")
    status, _, stderr = Launcher().run("-np", "1", "--min-np", "1", "--stdin-rank", "0", *program)
    assert status == 2 and b"debug in a job without --min-np" in stderr
