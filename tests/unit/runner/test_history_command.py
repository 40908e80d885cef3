"""horovodrun history: the table, the plots, and what it says when there is nothing to show."""

import json
import subprocess
import sys

import pytest

from horovod.runner import launch
from horovod.runner.history import command, text

LINES = [
    {
        "commit": number + 1,
        "time": 1.7e9 + number,
        "step": 2 * number,
        "loss": 1 / (1 + number),
        "note": "a\x1b[31m",
    }
    for number in range(50)
]


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps(line) for line in LINES]
    (tmp_path / "history.jsonl").write_text("\n".join([*lines, "", "[1]", '{"commit": 51, "st']))
    return tmp_path


def shown(capsys, *words):
    status = command.run([*map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_table_and_a_plot(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    status, output, _ = shown(capsys, folder, "--last", 3)
    assert status == 0
    table, plot = output.split("\n\n")
    head, note, *rows = table.splitlines()
    assert head.split() == ["commit", "time", "step", "loss", "note"]
    assert "47 earlier lines" in note and [row.split()[0] for row in rows] == ["48", "49", "50"]
    assert "\x1b" not in output and r"a\x1b[31m" in table
    assert plot.startswith("loss\n") and plot.count("*") > 20
    assert max(map(len, plot.splitlines())) <= 70 and "0 step" in plot and plot.rstrip().endswith("98")


def test_all_rows(folder, capsys):
    output = shown(capsys, folder, "--last", 0)[1]
    assert "earlier" not in output and len(output.split("\n\n")[0].splitlines()) == 51


def test_json(folder, capsys):
    status, output, _ = shown(capsys, folder / "history.jsonl", "--json")
    assert status == 0 and [json.loads(line) for line in output.splitlines()] == LINES


def test_a_metric_by_name(folder, capsys):
    output = shown(capsys, folder, "--metric", "step")[1]
    assert "\n\nstep\n" in output and "\n\nloss\n" not in output
    status, _, error = shown(capsys, folder, "--metric", "speed")
    assert status == 1 and "no numbers named speed" in error


def test_a_picture(folder, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    for suffix, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"history.{suffix}"
        assert shown(capsys, folder, "--output", path)[0] == 0
        assert path.read_bytes().startswith(begin)
    status, _, error = shown(capsys, folder, "--output", tmp_path / "history.xyz")
    assert status == 1 and "xyz" in error


def test_without_matplotlib(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    status, _, error = shown(capsys, folder, "--output", "x.png")
    assert status == 1 and "needs matplotlib" in error


NOTHING = "nothing is recorded: call state.record(loss=...) in the training, with --checkpoint-dir\n"


def test_nothing_to_show(tmp_path, capsys):
    assert shown(capsys, tmp_path)[:2] == (0, NOTHING)
    assert shown(capsys, tmp_path / "absent")[0] == 1


@pytest.mark.parametrize("values", [[5.0], [2.0, 2.0], [1e300, -1e300, 0.5], list(range(1000))])
def test_any_numbers_are_drawn(values):
    lines = [{"step": step, "x": value} for step, value in enumerate(values)]
    (plot,) = text.plots_of(lines)
    drawn = text.drawn(plot, 40)
    assert "*" in drawn and max(map(len, drawn.splitlines())) <= 40


def test_lines_that_are_not_alike():
    lines = [{"loss": 1.0}, {"step": 1, "loss": "nan"}, {"accuracy": True}, {"loss": 3}]
    (plot,) = text.plots_of(lines)
    assert (plot.axis, plot.places, plot.values) == ("line", [1, 4], [1, 3])
    assert len(text.table(lines, 0).splitlines()) == 5


def test_the_subcommand(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["horovodrun", "history", str(folder), "--last", "1"])
    with pytest.raises(SystemExit) as ended:
        launch.run_commandline()
    assert ended.value.code == 0 and "49 earlier" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["horovodrun", "history"])
    with pytest.raises(SystemExit) as ended:
        launch.run_commandline()
    assert ended.value.code == 2


def test_a_launch_does_not_import_it():
    code = "import sys, horovod.runner.launch; print([n for n in sys.modules if 'history' in n])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
