"""A rank of a search is killed, wherever it is: in an elastic job that costs its trial at most; another job
ends, and the next one goes on with its study.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from launch import PROGRAMS, Launcher, Result

pytest.importorskip("optuna", reason="the search needs optuna")

PROGRAM = str(PROGRAMS / "search_killed.py")
TRIALS = 12
PHASES = ("next", "suggest", "report", "should_prune", "end_trial", "end", "leave")
WHERE = [
    *((rank, when, phase) for rank, when, phase in itertools.product("0123", ("before", "after"), PHASES)),
    *(("0", when, phase) for when in ("before", "after") for phase in ("answer", "results")),
]
QUICK = [
    ("3", "after", "next"),
    ("3", "before", "report"),
    ("1", "before", "should_prune"),
    ("3", "before", "end_trial"),
    ("3", "before", "leave"),
    ("0", "before", "suggest"),
    ("0", "after", "answer"),
    ("0", "after", "results"),
]
ENDS = [("3", "before", "report"), ("0", "after", "answer")]


def run(path: Path, where: tuple[str, ...], *options: str) -> tuple[Result, Any]:
    """The job, and what its rank 0 prints."""
    launcher = Launcher()
    words = (PROGRAM, str(path / "journal"), *where)
    result = launcher.finish(launcher.start("-np", "4", *options, *words), 60)
    lines = [line for line in result.output.splitlines() if line.startswith("[0]<stdout>:{")]
    return result, json.loads(lines[0].partition(":")[2]) if lines else None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The study when nobody is killed."""
    result, found = run(tmp_path_factory.mktemp("whole"), ("0", "before", "nothing"))
    assert result.returncode == 0, result.output
    return sorted(trial["params"]["x"] for trial in found["trials"])


def elastic(path: Path, where: tuple[str, ...], whole: Any) -> None:
    result, found = run(path, where, "--min-np", "1")
    assert result.returncode == 0 and (path / "journal.killed").exists(), result.output
    lost = [trial for trial in found["trials"] if trial["state"] == "FAIL"]
    assert len(found["trials"]) == TRIALS and len(lost) <= 1, result.output
    assert [trial["error"]["traceback"] for trial in lost] == ["a rank of this trial is gone"] * len(lost)
    drawn = {trial["params"]["x"] for trial in found["trials"] if trial["params"]}
    assert drawn <= set(whole) and len(drawn) >= TRIALS - len(lost)
    assert "lock file" not in result.output


def static(path: Path, where: tuple[str, ...], whole: Any) -> None:
    result, found = run(path, where)
    assert result.returncode != 0 and (path / "journal.killed").exists(), result.output
    result, found = run(path, where)
    assert result.returncode == 0 and "lock file" not in result.output, result.output
    assert sorted(trial["params"]["x"] for trial in found["trials"]) == whole
    assert {trial["state"] for trial in found["trials"]} <= {"COMPLETE", "PRUNED"}


@pytest.mark.parametrize("where", QUICK, ids=" ".join)
def test_it_costs_its_trial_at_most(tmp_path: Path, whole: Any, where: tuple[str, ...]) -> None:
    elastic(tmp_path, where, whole)


@pytest.mark.parametrize("where", ENDS, ids=" ".join)
def test_the_next_job_goes_on(tmp_path: Path, whole: Any, where: tuple[str, ...]) -> None:
    static(tmp_path, where, whole)


@pytest.mark.full
@pytest.mark.parametrize("where", WHERE, ids=" ".join)
@pytest.mark.parametrize("job", (elastic, static))
def test_wherever_it_is(tmp_path: Path, whole: Any, where: tuple[str, ...], job: Any) -> None:
    job(tmp_path, where, whole)
