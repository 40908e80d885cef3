"""The table that `make test` ends with, and the names of what failed."""

import runpy
from pathlib import Path

import pytest
from load import MOST

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test_all.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "=========== 3 failed, 130 passed, 2 skipped in 88.80s (0:01:28) ===========",
            "3 failed, 130 passed, 2 skipped",
        ),
        ("40 passed in 1.02s", "40 passed"),
        ("1 passed, 1 error in 0.50s", "1 passed, 1 error"),
        ("98% tests passed, 1 tests failed out of 40", "39 passed, 1 failed"),
        ("100% tests passed, 0 tests failed out of 40", "40 passed"),
        ("100% tests passed out of 40", "40 passed"),
        ("the text of a test that failed", ""),
    ],
)
def test_the_closing_lines_of_the_runners_are_understood(script, line, shown):
    assert script["counts"](line) == shown


def test_a_group_that_fails_does_not_stop_the_others(script, tmp_path, monkeypatch, capsys):
    (tmp_path / "Makefile").write_text(
        "first:\n\t@echo '1 failed in 0.10s'; exit 1\nsecond:\n\t@echo '2 passed in 0.10s'\n"
    )
    monkeypatch.chdir(tmp_path)
    assert script["main"](["first", "second"]) == 1
    table = capsys.readouterr().out.split("\n\n")[-2].splitlines()
    rows = [line.split() for line in table[1:]]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["first", "FAILED", "1", "failed"],
        ["second", "passed", "2", "passed"],
    ]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "FAILED tests/mp/test_x.py::test_jobs[Open MPI-3] - AssertionError: 1 - 2",
            "tests/mp/test_x.py::test_jobs[Open MPI-3]",
        ),
        ("FAILED tests/mp/test_x.py::test_jobs", "tests/mp/test_x.py::test_jobs"),
        ("ERROR tests/mp/test_x.py - ImportError: no", "tests/mp/test_x.py"),
        ("\t 33 - core.backend_schedule (Failed)", "core.backend_schedule (Failed)"),
        ("FAILED Schedule.OnBoardsOfEveryShape", "Schedule.OnBoardsOfEveryShape"),
        ("FAILED: [code=1] core/a.cc.o", "core/a.cc.o"),
        ("FAILED: core/a.cc.o ", "core/a.cc.o"),
        ("E   FAILED tests/mp/test_x.py::test_jobs", ""),
        ("the text of a test that failed", ""),
    ],
)
def test_what_failed_is_found_by_its_line(script, line, name):
    assert script["failed_name"](line + "\n") == name


def test_the_run_ends_with_what_failed(script, tmp_path, monkeypatch, capsys):
    lines = ["FAILED tests/a.py::test_b - no", "FAILED tests/a.py::test_b - no", "2 failed in 0.10s"]
    printed = "\n".join(f"\t@echo '{line}'" for line in lines)
    (tmp_path / "Makefile").write_text(f"named:\n{printed}; exit 1\nunnamed:\n\t@echo $(WHY); exit 1\n")
    monkeypatch.chdir(tmp_path)
    assert script["main"](["named", "unnamed WHY=nothing_is_here"]) == 1
    ending = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert ending[:4] == [
        "Failed in named:",
        "  tests/a.py::test_b",
        "Failed in unnamed WHY=nothing_is_here:",
        "  nothing_is_here",
    ]


@pytest.mark.parametrize(
    "seconds", [120.0, pytest.param(7.0, marks=pytest.mark.timeout(7.0))], ids=["usual", "its own"]
)
def test_the_limit_of_a_test_is_stretched_when_it_begins(request, seconds):
    (limit,) = request.node.get_closest_marker("timeout").args
    assert seconds <= limit <= seconds * MOST
