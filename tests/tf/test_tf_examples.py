"""The examples for TensorFlow and Keras, as a user starts them: by the installed horovodrun."""

import re
import sys
from pathlib import Path

import pytest
from elastic_examples import survives_a_kill
from launch import ROOT, Launcher

pytestmark = pytest.mark.slow  # TensorFlow is imported for each, by every rank

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
SECONDS = 400  # most of them go into importing TensorFlow on a machine with little to spare


def run(processes: int, name: str, *arguments: str, **environment: str) -> list[str]:
    """The lines that rank 0 prints; no other rank may print any. On failure the test shows both streams."""
    launcher = Launcher()
    command = [str(HOROVODRUN), "-np", str(processes), sys.executable, str(ROOT / "examples" / name)]
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    process = launcher.popen([*command, *arguments], env={**launcher.environment, **quiet, **environment})
    done = launcher.finish(process, SECONDS)
    assert done.returncode == 0, f"status {done.returncode}\n{done.output}"
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if not line.startswith("[0]<stdout>:")] == []
    return [line.removeprefix("[0]<stdout>:") for line in lines]


def numbers(lines: list[str], after: str) -> list[float]:
    """Those that follow a word."""
    found = [re.search(rf"\b{after}:? +([0-9.]+)", line) for line in lines]
    return [float(match.group(1)) for match in found if match]


@pytest.mark.timeout(SECONDS + 30)
def test_keras_digits_learns_and_ends_bit_identical():
    *epochs, best, last = run(2, "keras_digits.py")
    assert numbers(epochs, "epoch") == list(range(1, 9))
    accuracies = numbers(epochs, "accuracy")
    assert accuracies[-1] >= 95
    warm, full = [0.03, 0.04], 0.04  # from 0.02 for one process to that of two, in two epochs
    assert numbers(epochs, "rate") == pytest.approx([*warm, *[full] * 4, *[full / 10] * 2], abs=1e-4)
    assert numbers([best], "accuracy") == [pytest.approx(max(accuracies), abs=0.11)]  # both are rounded
    assert last == "2 process(es), final weights bit-identical"


@pytest.mark.timeout(SECONDS + 30)
def test_keras_digits_on_torch():
    *epochs, _, last = run(2, "keras_digits.py", "--epochs", "2", KERAS_BACKEND="torch")
    losses = numbers(epochs, "loss")
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert last == "2 process(es), final weights bit-identical"


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_loop_of_ones_own_learns_and_ends_bit_identical(processes):
    *epochs, last = run(processes, "tensorflow_tape.py", "--epochs", "4")
    assert numbers(epochs, "epoch") == [1, 2, 3, 4]
    assert numbers(epochs, "accuracy")[-1] > 90
    assert last == f"{processes} process(es), final weights bit-identical"


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("legacy", [False, pytest.param(True, marks=pytest.mark.full)])
def test_tutorial_learns(legacy):
    if legacy:
        pytest.importorskip("tf_keras", reason="the package tf_keras is not installed")
    lines = run(2, "tensorflow_tutorial.py", **({"TF_USE_LEGACY_KERAS": "1"} if legacy else {}))
    accuracies = numbers(lines, "accuracy")
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.8


@pytest.mark.timeout(SECONDS + 30)
def test_keras_elastic_goes_on_when_a_rank_is_killed():
    output = survives_a_kill("keras_elastic.py", "--epochs", "8", seconds=SECONDS)
    accuracy = re.search(r"([\d.]+)% of the test images", output)
    assert accuracy is not None and float(accuracy[1]) > 80, output
