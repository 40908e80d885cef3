"""Searches on parts of a job: every trial is accounted for, whatever happens to its ranks."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import PROGRAMS, Launcher
from load import within

pytest.importorskip("optuna", reason="the search needs optuna")

PROGRAM = str(PROGRAMS / "searches.py")


def run(path: Path, *options: str, ranks: int = 2, count: int = 12, what: str = "") -> tuple[int, Any, str]:
    """Status, what rank 0 prints, and all output."""
    launcher = Launcher()
    words = [str(ranks), str(count), str(path / "journal"), what]
    result = launcher.finish(launcher.start(*options, PROGRAM, *words), 120)
    lines = [line for line in result.output.splitlines() if line.startswith("[0]<stdout>:{")]
    return result.returncode, json.loads(lines[0].partition(":")[2]) if lines else None, result.output


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same study, trial by trial."""
    status, found, output = run(tmp_path_factory.mktemp("alone"), "-np", "2")
    assert status == 0, output
    return found


def params(found: Any) -> list[Any]:
    return [trial["params"] for trial in found["trials"]]


def test_two_teams_find_what_one_finds(tmp_path: Path, alone: Any) -> None:
    status, found, output = run(tmp_path, "-np", "4")
    assert status == 0, output
    assert found["best"] == pytest.approx(alone["best"]) and params(found) == params(alone)
    assert {trial["team"] for trial in found["trials"]} == {0, 1}
    assert {trial["state"] for trial in found["trials"]} == {"COMPLETE"}
    assert "search: 12 of 12 trials, best" in output and "UserWarning" not in output


def test_a_trial_that_raises_and_a_study_that_is_full(tmp_path: Path, alone: Any) -> None:
    status, found, output = run(tmp_path, "-np", "5", what="raise")  # one rank is in no team
    assert status == 0, output
    states = [trial["state"] for trial in found["trials"]]
    assert states == [*["COMPLETE"] * 4, "FAIL", "COMPLETE", "PRUNED", "COMPLETE", "FAIL", *["COMPLETE"] * 3]
    error = found["trials"][4]["error"]
    assert error["rank"] in (1, 3) and "RuntimeError: planted" in error["traceback"]
    error = found["trials"][8]["error"]
    assert error["rank"] in (1, 3) and "calls 'suggest float x' where rank" in error["traceback"]
    assert output.count("hvd.search: the study cannot go on: OSError: no room") == 2 * 5
    assert output.count("trials: 4") == 5
    assert params(found) == params(alone)


def test_a_study_goes_on_after_its_job_was_killed(tmp_path: Path, alone: Any) -> None:
    status, found, output = run(tmp_path, "-np", "4", what="end")
    assert status == -9 and found is None, output
    status, found, output = run(tmp_path, "-np", "4")
    assert status == 0, output
    assert {trial["state"] for trial in found["trials"]} == {"COMPLETE"}
    assert sorted(map(str, params(found))) == sorted(map(str, params(alone)))


WAITS = """
import sys, time
from horovod import search
from horovod.common import basics
from horovod.common.progress import progress

def objective(trial):
    for step in range(20):
        time.sleep(0.05)
        trial.report(trial.suggest_float("x", 0, 1), step)
        progress()
    return 1.0

basics.init()
search.search(objective, 6, 1, storage=None)
"""


def test_the_rank_that_has_the_study_does_not_seem_to_wait(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    status, _, stderr = Launcher().run("-np", "2", f"--metrics={path}", sys.executable, "-c", WAITS)
    assert status == 0, stderr
    found = json.loads(path.read_text())
    # One second for each trial, and at the end a rank may wait for the last one of the other.
    assert sum(row["step"] for row in found["ranks"]) == 6 * 20
    assert all(row["waited"] < 1.0 + within(0.6) for row in found["ranks"]), found
