"""``horovodrun bench`` and ``doctor`` on this host: figures that fit each other, in lines of 80 columns."""

import json
import signal
from pathlib import Path

import pytest
from launch import Launcher

from horovod.runner.probes import command


@pytest.mark.parametrize("ranks", [1, 3])
def test_figures_fit_each_other(ranks: int) -> None:
    line = ["bench", "-np", str(ranks), "--json", "--max-bytes", "20000"]
    status, stdout, stderr = Launcher().run(*line)
    assert status == 0 and stderr == b"", stderr
    limits, *rows = map(json.loads, stdout.splitlines())
    assert limits["memory_copies_gbs"] > 0 and limits["links_gbs"] == {} and limits["slow"] == []
    assert {row["operation"] for row in rows} == set(command.OPERATIONS)
    assert {row["bytes"] for row in rows} >= {4 * (256 // ranks * ranks), 4 * (1024 // ranks * ranks)}
    for row in rows:
        assert row["bytes"] == 4 * row["count"] and row["time_us"] > 0
        assert row["algbw_gbs"] == pytest.approx(row["bytes"] / row["time_us"] / 1e3)
        shares = {"allreduce": 2 * (ranks - 1) / ranks, "broadcast": 1}
        share = shares.get(row["operation"], (ranks - 1) / ranks)
        assert row["busbw_gbs"] == pytest.approx(share * row["algbw_gbs"])


def test_lines_of_an_elastic_bench_have_no_prefix_either() -> None:
    line = ("bench", "-np", "2", "--min-np", "1", "--operation", "broadcast", "--max-bytes", "1K", "--json")
    status, stdout, stderr = Launcher().run(*line)
    assert status == 0 and [json.loads(text) for text in stdout.splitlines()], stderr


def test_an_interrupt_leaves_the_figures() -> None:
    launcher = Launcher()
    process = launcher.start("bench", "-np", "2", "--max-bytes", "1G", "--factor", "2")
    assert process.stdout is not None
    while not process.stdout.readline().startswith(b"allreduce"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    result = launcher.finish(process, 20)
    assert result.returncode == 130 and "Traceback" not in result.output, result.output


def test_an_operation_that_does_not_exist_is_an_error() -> None:
    status, stdout, stderr = Launcher().run("bench", "-np", "1", "--", "--operation", "alreduce")
    assert (status, stdout) == (2, b"") and stderr.count(b"invalid choice: 'alreduce'") == 1, stderr


def test_the_table_fits_a_terminal() -> None:
    status, stdout, _ = Launcher().run("bench", "-np", "2", "--operation", "allreduce", "--max-bytes", "5K")
    lines = stdout.decode().splitlines()
    assert status == 0 and len(lines) == 5, lines
    assert all(len(line) <= 80 for line in lines), lines
    assert lines[0].startswith("ranks: 2, hosts: 1;") and lines[1].startswith("ceiling: memory copies: ")
    assert lines[2].split()[0] == "operation" and lines[3].split()[1] == "1024"


def test_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    picture = tmp_path / "bench.png"
    for path, expected in ((picture, 0), (tmp_path / "none" / "bench.png", 1)):
        line = ("bench", "-np", "2", "--operation", "broadcast", "--max-bytes", "1K", "--plot", str(path))
        status, _, stderr = Launcher().run(*line)
        assert status == expected and b"Traceback" not in stderr, stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("probe", ["bench", "doctor"])
def test_help_starts_no_job(probe: str) -> None:
    for words in (["--help"], ["-np", "2", "--", "-h"]):
        status, stdout, stderr = Launcher().run(probe, *words)
        assert status == 0 and stdout.startswith(f"usage: horovodrun {probe}".encode()) and stderr == b""


def test_what_the_doctor_says_fits_a_terminal_and_programs() -> None:
    status, stdout, stderr = Launcher().run("doctor")
    assert status == 0 and stderr == b"" and stdout.startswith(b"localhost: python 3."), stderr
    assert all(len(line) <= 80 for line in stdout.splitlines()), stdout
    _, stdout, _ = Launcher().run("doctor", "--json")
    rows = [json.loads(line) for line in stdout.splitlines()]
    assert {row["host"] for row in rows} == {"localhost"} and rows[0]["name"] == "cores"
