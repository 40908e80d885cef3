"""The examples for MXNet, as a user starts them."""

import json
import re
import sys
from pathlib import Path

import check_mxnet  # noqa: F401  # skips
import pytest
from launch import ROOT, Launcher

SECONDS = 110


def run(processes: int, name: str, *arguments: str) -> list[str]:
    """The lines that rank 0 prints; no other rank may print any."""
    launcher = Launcher()
    program = [sys.executable, "-W", "ignore", str(ROOT / "examples" / name), *arguments]
    process = launcher.start("-np", str(processes), *program, OMP_NUM_THREADS="1")
    done = launcher.finish(process, SECONDS)
    assert done.returncode == 0, f"status {done.returncode}\n{done.output}"
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if not line.startswith("[0]<stdout>:")] == []
    return lines


@pytest.mark.parametrize("processes", [1, 2])
def test_digits_learns_and_ends_bit_identical(tmp_path: Path, processes: int) -> None:
    report = tmp_path / "report.jsonl"
    printed = run(processes, "mxnet_digits.py", "--json", str(report))
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 9))
    assert all(line["identical"] and line["processes"] == processes for line in lines)
    assert lines[-1]["accuracy"] >= 0.95
    assert lines[-1]["loss"] < lines[0]["loss"] / 4
    assert len(printed) == 9


def test_tutorial_learns() -> None:
    printed = run(2, "mxnet_tutorial.py", "--epochs", "3")
    accuracies = [float(re.search(r"accuracy ([0-9.]+)%", line).group(1)) for line in printed]
    assert len(accuracies) == 3
    assert accuracies[-1] > 85
