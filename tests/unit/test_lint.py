"""`make lint` shows at once all that its tools find."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = {
    "ruff check .": "ruff check",
    "ruff format --check .": "ruff format",
    "mypy": "mypy",
    "clang-format --dry-run": "clang-format",
    "python -m pytest tests/unit/test_layers.py": "layers",
}


def lint(folder: Path, finding: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs it with tools that print how they were called, some of which find something."""
    tools = folder / "bin"
    tools.mkdir()
    cases = "".join(f"'{call}'*) exit 1;; " for call in finding)
    script = f'#!/bin/sh\necho "called ${{0##*/}} $*"\ncase "${{0##*/}} $*" in {cases}esac\n'
    for name in {call.split()[0] for call in CHECKS}:
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    for made in (".tools", ".front_doors"):
        (folder / made).touch()
    command = ["make", "--no-print-directory", "lint", f"VENV={folder}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "finding",
    [[], [*CHECKS][:1], [*CHECKS][2:4], [*CHECKS][-1:]],
    ids=["none", "the first", "two", "the last"],
)
def test_every_tool_runs_and_those_that_find_something_are_named_last(tmp_path, finding):
    done = lint(tmp_path, finding)
    said = done.stdout.splitlines()
    assert all(any(line.startswith(f"called {call}") for line in said) for call in CHECKS), done
    if finding:
        assert said[-1] == f"Failed: {', '.join(CHECKS[call] for call in finding)}"
    assert (done.returncode != 0) == bool(finding)
