"""``horovodrun bench`` on this host: every collective, at several sizes, with figures that fit each other."""

import json

import pytest
from launch import Launcher


@pytest.mark.parametrize("ranks", [1, 3])
def test_figures_fit_each_other(ranks: int) -> None:
    line = ["bench", "-np", str(ranks), "--", "--json", "--max-bytes", "20000"]
    status, stdout, stderr = Launcher().run(*line)
    assert status == 0 and stderr == b"", stderr
    rows = [json.loads(text.partition(b">:")[2]) for text in stdout.splitlines()]
    assert {row["operation"] for row in rows} == {"allreduce", "allgather", "reducescatter", "broadcast"}
    assert {row["bytes"] for row in rows} >= {4 * (256 // ranks * ranks), 4 * (1024 // ranks * ranks)}
    for row in rows:
        assert row["bytes"] == 4 * row["count"] and row["time_us"] > 0
        assert row["algbw_gbs"] == pytest.approx(row["bytes"] / row["time_us"] / 1e3)
        shares = {"allreduce": 2 * (ranks - 1) / ranks, "broadcast": 1}
        share = shares.get(row["operation"], (ranks - 1) / ranks)
        assert row["busbw_gbs"] == pytest.approx(share * row["algbw_gbs"])


def test_an_operation_that_does_not_exist_is_an_error() -> None:
    status, stdout, stderr = Launcher().run("bench", "-np", "1", "--", "--operation", "alreduce")
    assert (status, stdout) == (2, b"") and b"invalid choice: 'alreduce'" in stderr, stderr


def test_the_table_fits_a_terminal() -> None:
    status, stdout, _ = Launcher().run(
        "bench", "-np", "2", "--", "--operation", "allreduce", "--max-bytes", "5000"
    )
    lines = stdout.decode().splitlines()
    assert status == 0 and len(lines) == 4, lines
    assert all(len(line) <= 80 for line in lines[1:]), lines
    assert lines[1].split()[0].endswith("operation") and lines[2].split()[1] == "1024"
