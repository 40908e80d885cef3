"""What the launcher makes of what ranks say of how far they are."""

import json
import math
import os
import socket
import time
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.bootstrap.store.reports import Report, decode
from horovod.runner.ending import Exit
from horovod.runner.progress import formats, metrics, places, serving, table
from horovod.runner.progress.pace import pace
from horovod.runner.progress.summary import awaited
from horovod.runner.progress.view import View

REPORT = Report(0, 0, 10.0, 5, 20, 1, 160.0, 2.0, 3.0, 1 << 20)


def at(second: float, step: int | None, rank: int = 0, waiting: float = 0.5, **others: Any) -> Report:
    """One who makes a step of 32 samples, waits so, and keeps two cores busy."""
    made = {"step": step, "samples": 32.0 * (step or 0), "waited": waiting * second, "cpu": 2.0 * second}
    return REPORT._replace(time=second, rank=rank, **{**made, **others})


def seen(*reports: Report, generation: int = 0) -> View:
    view = View()
    view.start(["/usr/bin/python", "train.py"])
    for rank in sorted({report.rank for report in reports}):
        view.started(rank, f"node{rank % 2}", 100 + rank)
    if generation:
        view.generation(generation, [(rank, rank) for rank in {report.rank for report in reports}])
    for report in reports:
        assert view.take(report.rank, b"progress/", report.encode()) == ""
    return view


def test_a_report_travels() -> None:
    assert decode(REPORT.encode()) == REPORT
    assert decode(REPORT._replace(step=None, steps=None, epoch=None).encode()).step is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 900,
        REPORT.encode() + b" " * 1024,
        REPORT._replace(rank=-1).encode(),
        REPORT._replace(memory=1.5).encode(),  # type: ignore[arg-type]
        REPORT._replace(step="5").encode(),  # type: ignore[arg-type]
        REPORT._replace(time=math.nan).encode(),
        REPORT._replace(steps=1 << 70).encode(),
        REPORT._replace(samples=[1]).encode(),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_report_is_refused(value: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode(value)
    assert View().take(0, b"progress/", value) == "not a report"


def test_rates_are_those_of_the_last_reports() -> None:
    window = [at(float(second), 4 * second) for second in range(1, 6)]
    found = pace(window[0], window)
    assert (found.step, found.steps_per_second, found.samples_per_second) == (20, 4.0, 128.0)
    assert (found.waiting, found.cores) == (0.5, 2.0)


def test_steps_that_take_longer_than_the_reports_go_back() -> None:
    """A step takes 30 s: none ends within the window."""
    window = [at(float(second), 3) for second in range(61, 73)]
    assert pace(at(1.0, 1), window).steps_per_second == pytest.approx(2 / 71)


def test_who_says_no_step_has_none() -> None:
    found = pace(None, [at(1.0, None), at(2.0, None)])
    assert (found.step, found.steps_per_second, found.cores) == (None, None, 2.0)


def test_the_job_is_as_far_as_its_last_rank() -> None:
    reports = [at(float(t), (9 - r) * t, rank=r, steps=100) for t in (1, 2, 3) for r in (0, 1)]
    snapshot = seen(*reports).snapshot()
    assert (snapshot["step"], snapshot["steps"], snapshot["size"]) == (24, 100, 2)
    assert snapshot["progress"] == 0.24 and snapshot["samples_per_second"] == 17 * 32
    assert snapshot["seconds_left"] == pytest.approx(76 / 8.5)
    assert snapshot["generation"] is None and snapshot["status"] is None


def test_a_new_generation_counts_anew() -> None:
    before = [at(float(t), 10 * t, generation=1) for t in (1, 2)]
    view = seen(*before, at(3.0, 15, generation=2), at(4.0, 17, generation=2), generation=2)
    (row,) = view.snapshot()["ranks"]
    assert (row["step"], row["steps_per_second"], row["rank"]) == (17, 2.0, 0)


def test_a_worker_that_waits_for_a_place_has_no_rank() -> None:
    view = seen(at(1.0, 1), generation=1)
    view.started(1, "node1", 101)
    assert [row["rank"] for row in view.snapshot()["ranks"]] == [0, None]


def test_a_job_that_has_ended_is_where_it_was() -> None:
    view = seen(at(1.0, 19), at(2.0, 20))
    view.exits([Exit(0, 0)])
    view.end(0)
    snapshot = view.snapshot()
    assert (snapshot["status"], snapshot["progress"], snapshot["seconds_left"]) == (0, 1.0, 0.0)
    assert snapshot["ranks"][0]["host"] == "node0"


def rows(*shares: float | None) -> list[dict[str, Any]]:
    return [{"rank": rank, "waiting": share} for rank, share in enumerate(shares)]


@pytest.mark.parametrize(
    ("shares", "rank"),
    [
        ((0.9, 0.1, 0.8), 1),
        ((0.9, 0.8, 0.85), None),
        ((0.0, 0.5), 0),
        ((0.5,), None),
        ((0.5, None), None),
        ((), None),
    ],
)
def test_the_rank_that_waits_least_is_waited_for(shares: tuple[float | None, ...], rank: int | None) -> None:
    assert awaited(range(len(shares)), rows(*shares)) == rank


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9100", [("127.0.0.1", 9100)]),
        ("0", [("127.0.0.1", 0)]),
        (":9100", [("", 9100)]),
        ("node1:9100", [("node1", 9100)]),
        ("[fd00::1]:9100", [("fd00::1", 9100)]),
        ("trainjob", ["trainjob"]),
        ("/a/b,9100", ["/a/b", ("127.0.0.1", 9100)]),
    ],
)
def test_places(text: str, found: list[places.Place]) -> None:
    assert places.parse(text) == found


@pytest.mark.parametrize("text", ["65536", "node1:0", "metrics", "node1:x", "fd00::1:9100", "127.0.0.1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        places.parse(text)


def test_names_of_hosts_are_no_part_of_the_format() -> None:
    view = seen(at(1.0, 1), at(2.0, 2))
    view.started(0, 'a"} 1\nb\\', 1)
    text = formats.prometheus(view.snapshot())
    assert r'horovod_rank_step{rank="0",host="a\"} 1\nb\\"} 2' in text.splitlines()


def test_the_status_of_a_trainjob_has_the_form_that_kubeflow_reads() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="Kubeflow's models say the form")
    status = formats.trainer_status(seen(at(1.0, 4, steps=20), at(2.0, 5, steps=20)).snapshot())
    read = models.TrainerV1alpha1TrainerStatus.from_dict(json.loads(json.dumps(status)))
    assert (read.progress_percentage, read.estimated_remaining_seconds) == (25, 15)
    assert {metric.name: metric.value for metric in read.metrics}["step"] == "5"
    assert read.last_updated_time is not None
    empty = formats.trainer_status(View().snapshot())
    assert empty.keys() == {"lastUpdatedTime", "metrics"} and empty["metrics"] == []


def test_a_command_line_is_for_the_user_alone() -> None:
    snapshot = seen(at(1.0, 1)).snapshot()
    assert "train.py" in str(snapshot) and "train.py" not in str(formats.public(snapshot))


def test_the_table_fits_80_columns_and_its_room() -> None:
    reports = [at(float(t), 100_000 * t, rank=r, waiting=0.9 * (r != 3)) for t in (1, 2) for r in range(12)]
    view = seen(*reports)
    view.started(3, "\x1b[31mnode.with.a.long.name", 1)
    lines = table.lines(view.snapshot(), 80)
    assert len(lines) == 16 and all(len(line) <= 80 for line in lines) and "\x1b" not in "".join(lines)
    assert lines[0].startswith("job ") and "12 ranks on 3 hosts" in lines[0] and "python train.py" in lines[0]
    assert lines[1].startswith("step 200000 of 20") and "100000 steps/s" in lines[1]
    assert lines[-1].startswith("the others wait for rank 3 on")
    short = table.lines(view.snapshot(), 80, 10)
    assert len(short) == 10 and short[-2].strip() == "and 7 more ranks"


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_wide_characters_of_a_command_take_no_second_line() -> None:
    view = seen(at(1.0, 1))
    view.start(["python", "学習.py", "日本" * 30])
    view.started(0, "node1", 1)
    title, empty = (table.lines(job, 80)[0] for job in (view.snapshot(), {**view.snapshot(), "ranks": []}))
    assert 79 <= columns(title) <= 80 and "学習.py" in title
    assert 79 <= columns(empty) <= 80


def test_a_job_that_does_not_answer_is_there() -> None:
    (line,) = table.lines({"pid": 32751}, 80)
    assert line.startswith("job 32751 does not answer: ") and len(line) <= 80


def test_the_clock_of_the_host_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= view.snapshot()["seconds"] < 60


def test_metrics_are_exact_and_bear_any_name_of_a_host() -> None:
    view = seen(at(1.0, 12_345_678_901))
    view.started(0, 'n\udcff"\\\n', 1)
    own, other = socket.socketpair()
    with own, other:
        own.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        metrics.answer_http(other, view)
        other.close()
        told = own.recv(1 << 20)
    assert b"\nhorovod_step 12345678901\n" in told
    assert b'host="n?\\"\\\\\\n"' in told


def test_a_job_that_says_nothing_is_told_how_to() -> None:
    view = View()
    view.start(["train"])
    view.started(0, "elsewhere", 1)
    lines = table.lines(view.snapshot(), 80)
    assert "hvd.progress()" in lines[1] and lines[3].split()[:4] == ["0", "elsewhere", "1", "-"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /status HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics?a=b HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /else HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\xff\x00\r\n\r\n", b"405"),
        (b"x" * 10_000, b"405"),
    ],
)
def test_answers_by_http(request_: bytes, status: bytes) -> None:
    own, other = socket.socketpair()
    with own, other:
        own.settimeout(10)
        own.sendall(request_)
        own.shutdown(socket.SHUT_WR)
        other.settimeout(10)
        metrics.answer_http(other, seen(at(1.0, 1)))
        other.close()
        assert own.recv(1 << 20).split(b" ")[1] == status


def test_a_folder_that_others_can_use_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.os.path, "join", lambda *_: str(tmp_path / "own"))
    assert serving.folder() == str(tmp_path / "own")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    (tmp_path / "own").chmod(0o755)
    with pytest.raises(PermissionError, match="this user alone"):
        serving.folder()
    (tmp_path / "own").rmdir()
    (tmp_path / "own").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        serving.folder()


def test_a_job_of_another_launcher_has_no_rows() -> None:
    view = View()
    view.start(["train"])
    assert len(table.lines(view.snapshot(), 80)) == 2


def test_workers_that_are_gone_are_forgotten() -> None:
    view = seen(at(1.0, 1), at(1.0, 1, rank=1), generation=1)
    view.exits([Exit(1, 0)])
    view.started(2, "node2", 102)
    view.generation(2, [(0, 0), (1, 2)])
    assert view._reports.keys() == {0} and view._processes.keys() == {0, 2}


def test_a_file_takes_the_place_of_plain_files_only(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link.json"
    victim.write_text("mine")
    link.symlink_to(victim)
    for path in (link, tmp_path, Path(os.devnull)):
        with pytest.raises(ValueError, match="no plain file"):
            metrics._write(View(), str(path))
    metrics._write(View(), str(victim))
    assert json.loads(victim.read_text())["ranks"] == [] and len(list(tmp_path.iterdir())) == 2


class NoRoom:
    """A listener where no descriptor is free at first."""

    tries = 0

    def accept(self) -> None:
        self.tries += 1
        if self.tries < 3:
            raise OSError(24, "Too many open files")
        raise BlockingIOError

    def setblocking(self, _: bool) -> None:
        """As it was."""

    def close(self) -> None:
        """Nobody asks any more."""


def test_a_launcher_without_descriptors_goes_on_and_answers_when_some_are_free() -> None:
    registered: list[Any] = []
    selector = SimpleNamespace(
        register=lambda *given: registered.append(given[0]), unregister=registered.remove
    )
    loop = SimpleNamespace(selector=selector, attendants=[])
    listener = NoRoom()
    door = serving.Door(loop, listener, print)  # type: ignore[arg-type]
    for tries in (1, 2):
        assert registered == [listener] and door.tend(time.monotonic()) == float("inf")
        door._on_ready()
        then = door.tend(time.monotonic())
        assert registered == [] and listener.tries == tries  # no busy loop
        assert 0 < then - time.monotonic() < 5 and door.tend(then) == float("inf")
    door._on_ready()
    assert registered == [listener] and loop.attendants == [door]
    door.close()
    assert registered == loop.attendants == []
