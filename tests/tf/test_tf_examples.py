"""The examples for TensorFlow and Keras: one as a user starts it, by the installed horovodrun, the others in
ranks that need not import TensorFlow again, which takes longer than to train.
"""

import re
from collections.abc import Callable

import pytest
from elastic_examples import survives_a_kill
from launch import ROOT
from run_program import ranks_program

pytestmark = pytest.mark.slow  # whole trainings

SECONDS = 400  # most of them go into importing TensorFlow on a machine with little to spare


def run(run_ranks: Callable, processes: int, name: str, *arguments: str) -> list[str]:
    """The lines that rank 0 prints; no other rank may print any."""
    program = [str(ROOT / "examples" / name), [*arguments]]
    first, *others = run_ranks(processes, ranks_program, program, timeout=120)
    assert not any(others)
    return first.splitlines()


def numbers(lines: list[str], after: str) -> list[float]:
    """Those that follow a word."""
    found = [re.search(rf"\b{after}:? +([0-9.]+)", line) for line in lines]
    return [float(match.group(1)) for match in found if match]


def test_keras_digits_learns_and_ends_bit_identical(run_ranks):
    *epochs, best, last = run(run_ranks, 2, "keras_digits.py")
    assert numbers(epochs, "epoch") == list(range(1, 9))
    accuracies = numbers(epochs, "accuracy")
    assert accuracies[-1] >= 95
    warm, full = [0.03, 0.04], 0.04  # from 0.02 for one process to that of two, in two epochs
    assert numbers(epochs, "rate") == pytest.approx([*warm, *[full] * 4, *[full / 10] * 2], abs=1e-4)
    assert numbers([best], "accuracy") == [pytest.approx(max(accuracies), abs=0.11)]  # both are rounded
    assert last == "2 process(es), final weights bit-identical"


def test_keras_digits_on_torch(run_torch_keras_ranks):
    *epochs, _, last = run(run_torch_keras_ranks, 2, "keras_digits.py", "--epochs", "2")
    losses = numbers(epochs, "loss")
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert last == "2 process(es), final weights bit-identical"


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_loop_of_ones_own_learns_and_ends_bit_identical(run_ranks, processes):
    *epochs, last = run(run_ranks, processes, "tensorflow_tape.py", "--epochs", "4")
    assert numbers(epochs, "epoch") == [1, 2, 3, 4]
    assert numbers(epochs, "accuracy")[-1] > 90
    assert last == f"{processes} process(es), final weights bit-identical"


@pytest.mark.parametrize(
    "runner", ["run_ranks", pytest.param("run_legacy_keras_ranks", marks=pytest.mark.full)]
)
def test_tutorial_learns(request, runner):
    lines = run(request.getfixturevalue(runner), 2, "tensorflow_tutorial.py")
    accuracies = numbers(lines, "accuracy")
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.8


@pytest.mark.timeout(SECONDS + 30)
def test_keras_elastic_goes_on_when_a_rank_is_killed():
    output = survives_a_kill("keras_elastic.py", "--epochs", "8", seconds=SECONDS)
    accuracy = re.search(r"([\d.]+)% of the test images", output)
    assert accuracy is not None and float(accuracy[1]) > 80, output
