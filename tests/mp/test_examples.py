"""The examples and the benchmarks in real processes: some as a user starts them, by the installed horovodrun,
the others in ranks that need not import torch again.
"""

import csv
import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from launch import ROOT, Launcher
from run_program import ranks_program

HOROVODRUN = Path(sys.executable).with_name("horovodrun")


def run(command: list[str], timeout: float = 100) -> str:
    """Standard output; on failure the test shows both streams."""
    launcher = Launcher()
    process = launcher.popen(command, env={**launcher.environment, "OMP_NUM_THREADS": "1"})
    done = launcher.finish(process, timeout)
    assert done.returncode == 0, f"status {done.returncode}\n{done.output}"
    return done.stdout.decode()


def example(run_ranks, processes: int, name: str, *arguments: str) -> list[str]:
    """What the example prints on each rank."""
    return run_ranks(processes, ranks_program, [str(ROOT / "examples" / name), [*arguments]])


# `make demo`, which CI runs, trains it with one process too.
@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_digits_learns_and_ends_bit_identical(tmp_path, processes):
    report = tmp_path / "report.jsonl"
    command = [
        sys.executable,
        str(ROOT / "examples" / "torch_digits.py"),
        "--epochs",
        "3",
        "--json",
        str(report),
    ]
    output = run(command if processes == 1 else [str(HOROVODRUN), "-np", str(processes), *command])
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[-1]["processes"] == processes
    assert all(line["identical"] for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"] / 4
    assert lines[-1]["accuracy"] > 0.85
    assert output.count("samples/s") == 3  # rank 0 alone reports


def test_tutorial_learns(run_ranks):
    output = example(run_ranks, 2, "torch_tutorial.py", "--epochs", "3")[0]
    accuracies = [float(line.split()[-1].rstrip("%")) for line in output.splitlines() if "accuracy" in line]
    assert len(accuracies) == 3
    assert accuracies[-1] > 85


def test_the_real_loop_resumes_to_the_same_bits(run_ranks, tmp_path):
    def train(name: str, *more: str) -> str:
        arguments = ["--epochs", "4", "--checkpoint", str(tmp_path / name), *more]
        return example(run_ranks, 2, "torch_real_loop.py", *arguments)[0]

    whole = train("whole").splitlines()
    train("parts", "--stop", "2")
    parts = train("parts").splitlines()
    assert whole[2:4] == parts[:2] and float(whole[3].split()[-1].rstrip("%")) > 85
    assert whole[-1].startswith("began at epoch 1;") and parts[-1].startswith("began at epoch 3;")
    assert whole[-1].split()[-1] == parts[-1].split()[-1]


@pytest.mark.parametrize(
    ("name", "processes", "said"),
    [
        ("torch_tensor_parallel.py", 4, "2 x 2 processes"),
        ("torch_two_stage.py", 2, "2 process(es), 5 tables"),
        ("torch_multi_task.py", 3, "rank 0 joined last"),
    ],
)
def test_computes_what_one_process_computes(run_ranks, name, processes, said):
    last = example(run_ranks, processes, name)[0].splitlines()[-1]
    assert said in last
    assert last.endswith("parameters equal to one process's")


def inference_config(folder: Path, **changes: object) -> Path:
    """The example's, with the output in ``folder``; a change to None leaves a key out."""
    values = json.loads((ROOT / "examples" / "inference.json").read_text())
    values |= {"output": str(folder / "predictions.csv"), **changes}
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return path


def test_batch_inference_labels_every_sample_in_order(run_ranks, tmp_path):
    config = inference_config(tmp_path, samples=100, features=6, classes=3, seed=5, batch=7)
    output = example(run_ranks, 3, "torch_batch_inference.py", str(config))[0]
    assert "100 lines, equal to one process's" in output
    with open(tmp_path / "predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    samples = torch.randn(100, 6, generator=torch.Generator().manual_seed(5))
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    probabilities, labels = model(samples).softmax(dim=1).max(dim=1)
    assert [int(row["sample"]) for row in rows] == list(range(100))
    assert [int(row["label"]) for row in rows] == labels.tolist()
    assert [float(row["probability"]) for row in rows] == pytest.approx(probabilities.tolist(), abs=1e-4)


def test_batch_inference_refuses_a_config_on_every_rank(tmp_path):
    config = inference_config(tmp_path, batch="many")
    script = str(ROOT / "examples" / "torch_batch_inference.py")
    launcher = Launcher()
    done = launcher.finish(launcher.start("-np", "2", sys.executable, script, str(config)), 100)
    assert (done.returncode, done.stdout) == (2, b"")
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("[")]
    complaint = f"{config}: 'batch' must be of type int, not 'many'"
    assert sorted(lines) == [f"[{rank}]<stderr>:{complaint}" for rank in range(2)]
    assert not (tmp_path / "predictions.csv").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seed": None}, "key 'seed' is missing"),
        ({"samples": True}, "'samples' must be of type int, not True"),
        ({"samples": 0}, "'samples' must be at least 1, not 0"),
        ({"sampels": 9}, "unknown key 'sampels'"),
        ({"output": "/nowhere/at/all.csv"}, "no folder '/nowhere/at'"),
    ],
)
def test_batch_inference_says_what_is_wrong_with_a_config(tmp_path, changes, complaint):
    read_config = runpy.run_path(str(ROOT / "examples" / "torch_batch_inference.py"))["read_config"]
    path = inference_config(tmp_path, **changes)
    said = read_config(str(path))
    assert said.startswith(f"{path}: ")
    assert complaint in said
    assert "\n" not in said


def test_examples_are_short_and_listed():
    paths = list((ROOT / "examples").glob("*.py"))
    listed = (ROOT / "examples" / "README.md").read_text()
    assert [path.name for path in paths if path.name not in listed] == []
    lengths = {path.name: len(path.read_text().splitlines()) for path in paths}
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
