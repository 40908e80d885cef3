"""Merging timelines: one clock, one process per rank, clear errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from horovod.runner import timeline
from horovod.runner.launch import parse_args
from horovod.runner.timeline import Clock

Event = timeline.Event


def write(path: Path, rank: int, clock: Clock, times: list[float], end: str = "\n]\n") -> Path:
    events: list[Event] = [
        {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"rank {rank}"}},
        {"ph": "M", "pid": rank, "tid": 0, "name": "horovod_clock", "args": {"clock": vars(clock)}},
        *({"ph": "i", "ts": ts, "pid": rank, "tid": 1, "s": "t", "name": 'ä \\ "x"'} for ts in times),
    ]
    # As the core writes: an event a line, blanks where a page ends.
    path.write_text("[\n" + "   ,\n".join(map(json.dumps, events)) + end, encoding="utf-8")
    return path


def test_files_of_one_clock_keep_their_order_to_the_nanosecond() -> None:
    # The time of day was adjusted by a second between the two starts: it must not matter.
    clocks = [Clock("boot", 1000.0, 5e15), Clock("boot", 1250.5, 5e15 + 1e6)]
    assert timeline.shifts(clocks) == [-1000.0, -1000.0]


def test_files_of_different_clocks_go_by_the_time_of_day() -> None:
    clocks = [Clock("a", 500.0, 10_000.0), Clock("b", 9_000.0, 1_600.0), Clock("a", 700.0, 10_000.0)]
    assert timeline.shifts(clocks) == [-500.0, -8_900.0, -500.0]


def test_a_merged_file_has_a_process_per_rank_in_order(tmp_path: Path) -> None:
    one = write(tmp_path / "b", 11, Clock("x", 100.0, 0.0), [130.125, 140.0])
    two = write(tmp_path / "a", 2, Clock("y", 7000.0, -6890.0), [7005.5])
    output = tmp_path / "out.json"
    assert timeline.merge(output, [one, two]) == [2, 11]
    events = json.loads(output.read_text(encoding="utf-8"))
    assert [(e["pid"], e["ts"]) for e in events if e["ph"] == "i"] == [(2, 15.5), (11, 30.125), (11, 40.0)]
    assert {e["name"] for e in events if e["ph"] == "i"} == {'ä \\ "x"'}
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["rank 2", "rank 11"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b", "out.json"]


@pytest.mark.parametrize("end", ["", "\n", ",\n", ',\n{"ph":"B","ts":', ",\n{}"[:3]])
def test_a_file_that_was_cut_off_is_merged_as_far_as_it_goes(tmp_path: Path, end: str) -> None:
    file = write(tmp_path / "t", 0, Clock("x", 1.0, 0.0), [2.0, 3.0], end)
    assert timeline.merge(tmp_path / "out", [file]) == [0]
    assert len(json.loads((tmp_path / "out").read_text())) == 4


def test_errors_name_the_file_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good", 0, Clock("x", 1.0, 0.0), [2.0])
    again = write(tmp_path / "again", 0, Clock("x", 1.0, 0.0), [2.0])
    spoilt = write(tmp_path / "spoilt", 1, Clock("x", 1.0, 0.0), [2.0], ',\n{"ph"\n{"ph":"E"}\n]\n')
    (tmp_path / "other").write_text('{"traceEvents": []}')
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    before = set(tmp_path.iterdir())
    for files, hint, wanted in [
        (["good", "again"], "both of rank 0", 2),
        (["other"], "no timeline", 2),
        (["empty"], "no timeline", 2),
        (["binary"], "no timeline", 2),
        (["spoilt"], "spoilt, line", 2),
        (["missing"], "missing", 1),
    ]:
        status = timeline.merge_command(str(tmp_path / "out"), [str(tmp_path / name) for name in files])
        assert status == wanted
        assert hint in capsys.readouterr().err
        assert set(tmp_path.iterdir()) == before
    assert timeline.merge_command(str(good), [str(good), str(again)]) == 2
    assert "another file" in capsys.readouterr().err
    assert spoilt.exists()


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"ph":' * 100_000,
        '{"ph":"B","ts":' + "9" * 5000 + "}",
        '{"ph":"B","ts":1e999}',
        '{"ph":"B","ts":NaN}',
        '{"ph":"B","ts":"1"}',
        '{"ph":"B","ts":{}}',
        '{"ph":7}',
        '{"ph":"i","name":"' + "x" * (3 << 20) + '"}',
        '{"ph":"M","pid":0,"name":"horovod_clock","args":{"clock":{"name":[],"now_us":1,"wall_minus_now_us":1}}}',
        '{"ph":"M","pid":0,"name":"horovod_clock","args":{"clock":{"name":"x","now_us":"1","wall_minus_now_us":1}}}',
        '{"ph":"M","pid":[],"name":"horovod_clock","args":{"clock":{"name":"x","now_us":1,"wall_minus_now_us":1}}}',
        '{"ph":"M","pid":0,"name":"horovod_clock","args":[]}',
    ],
    ids=range(13),
)
def test_a_file_that_is_made_to_do_harm_is_one_line_of_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    end = "\n]\n" if "horovod_clock" in line else ',\n{"ph":"E"}\n]\n'
    text = f"[\n{line}{end}" if "horovod_clock" in line else ""
    file = write(tmp_path / "t", 0, Clock("x", 1.0, 0.0), [2.0], f",\n{line}{end}")
    if text:
        file.write_text(text)
    assert timeline.merge_command(str(tmp_path / "out"), [str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("horovodrun: error: ") and error.count("\n") == 1 and "no timeline" in error
    assert [each.name for each in tmp_path.iterdir()] == ["t"]


def test_horovodrun_takes_the_files_behind_the_output() -> None:
    arguments = parse_args(["--merge-timelines", "out.json", "a.json", "b.json"])
    assert (arguments.merge_timelines, arguments.command) == ("out.json", ["a.json", "b.json"])
    assert parse_args(["-np", "1", "prog", "--merge-timelines", "x"]).merge_timelines is None
    with pytest.raises(SystemExit):
        parse_args(["--merge-timelines", "out.json"])


def test_the_module_is_a_command_too(tmp_path: Path) -> None:
    file = write(tmp_path / "t", 3, Clock("x", 1.0, 0.0), [2.0])
    command = [sys.executable, timeline.__file__, str(tmp_path / "out"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ranks 3" in done.stdout
    assert "OUT" in subprocess.run([*command[:2], "-h"], capture_output=True, text=True).stdout


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    absent = tmp_path / "timeline.7.json"
    assert timeline.merge_command(str(tmp_path / "out"), [str(absent)]) == 1
    assert capsys.readouterr().err == f"horovodrun: error: {absent}: No such file or directory\n"
