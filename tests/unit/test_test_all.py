"""The table that `make test` ends with."""

import runpy
from pathlib import Path

import pytest

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
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-2:]]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["first", "FAILED", "1", "failed"],
        ["second", "passed", "2", "passed"],
    ]
