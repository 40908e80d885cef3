"""The examples and the benchmarks as a user starts them: by the installed horovodrun, in real processes."""

import json
import sys
from pathlib import Path

import pytest
from launch import ROOT, Launcher

HOROVODRUN = Path(sys.executable).with_name("horovodrun")


def run(command: list[str], timeout: float = 100) -> str:
    """Standard output; on failure the test shows both streams."""
    launcher = Launcher()
    process = launcher.popen(command, env={**launcher.environment, "OMP_NUM_THREADS": "1"})
    done = launcher.finish(process, timeout)
    assert done.returncode == 0, f"status {done.returncode}\n{done.output}"
    return done.stdout.decode()


def example(name: str, *arguments: str, processes: int) -> str:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    if processes > 1:
        command = [str(HOROVODRUN), "-np", str(processes), *command]
    return run(command)


@pytest.mark.parametrize("processes", [1, 2])
def test_digits_learns_and_ends_bit_identical(tmp_path, processes):
    report = tmp_path / "report.jsonl"
    output = example("torch_digits.py", "--epochs", "5", "--json", str(report), processes=processes)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[-1]["processes"] == processes
    assert all(line["identical"] for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"] / 4
    assert lines[-1]["accuracy"] > 0.85
    assert output.count("samples/s") == 5  # rank 0 alone reports


def test_tutorial_learns():
    output = example("torch_tutorial.py", "--epochs", "3", processes=2)
    accuracies = [float(line.split()[-1].rstrip("%")) for line in output.splitlines() if "accuracy" in line]
    assert len(accuracies) == 3
    assert accuracies[-1] > 85


def test_examples_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert {"torch_digits.py", "torch_tutorial.py"} <= lengths.keys()
    assert max(lengths.values()) < 120


@pytest.mark.full
def test_benchmarks_compute_correct_results(tmp_path):
    report = tmp_path / "rows.json"
    compare = str(ROOT / "benchmarks" / "compare.py")
    table = run([sys.executable, compare, "--quick", "--json", str(report)])
    rows = json.loads(report.read_text())
    assert {row["benchmark"] for row in rows} == {"allreduce", "many", "train"}
    assert all({"horovod"} < row["rounds"].keys() for row in rows)
    assert "interleaved rounds" in table
