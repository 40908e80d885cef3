"""The table and picture of a comparison show every case, and ratios only if no other program disturbed it."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the plots of make bench are drawn by matplotlib")
FOLDER = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("plots"), importlib.import_module("samples")
    for name in ("plots", "samples"):
        del sys.modules[name]


def rows(samples, *benchmarks):
    times = {
        "horovod": [[1.0], [1.0]],
        "horovod grouped": [[1.0]] * 2,
        "ddp gloo": [[2.0], [4.0]],
        "alone": [[0.5]] * 2,
    }
    return [samples.Row(name, "16 KiB", 2, times, 0.0) for name in benchmarks]


def test_ratios_are_of_the_other_libraries(modules):
    plots, samples = modules
    assert plots.ratios(rows(samples, "allreduce", "train")) == [("16 KiB\nover ddp gloo", 3.0)]


@pytest.mark.parametrize("benchmarks", [["allreduce"], ["train"], ["allreduce", "many", "train"]])
def test_draws_what_was_measured(modules, tmp_path, benchmarks):
    plots, samples = modules
    plots.draw(rows(samples, *benchmarks), tmp_path / "new" / "bench.png")
    assert (tmp_path / "new" / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_sizes_are_read_from_the_cases(modules):
    plots, _ = modules
    assert [plots.bytes_of(case) for case in ("4 B", "16 KiB", "256 MiB")] == [4, 16 << 10, 256 << 20]


def test_ratios_are_left_out_where_other_programs_took_the_cores(modules, tmp_path):
    plots, samples = modules
    calm = [samples.taken_by_others(busy, 19.0, 20.0) for busy in (18.5, 19.0, 20.8)]
    assert calm == [0.0, 0.0, pytest.approx(0.09)] and samples.disturbance(calm) is None
    said = samples.disturbance([*calm, samples.taken_by_others(20.0, 10.0, 20.0)])
    assert "50%" in said and len(said.splitlines()) == 1
    measured = rows(samples, "allreduce", "train")
    assert "/ ours" in samples.table(measured)
    assert samples.table(measured).count("x ") == 6
    alone = samples.table(measured, compare=False)
    assert "/ ours" not in alone and "x " not in alone and alone.count("ddp gloo") == 2
    assert not plots.draw(rows(samples, "train"), tmp_path / "train.png", compare=False)
    assert plots.draw(measured, tmp_path / "all.png", compare=False)
    assert [path.name for path in tmp_path.iterdir()] == ["all.png"]
