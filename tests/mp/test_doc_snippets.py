"""The Python code in README.md and docs/ that uses PyTorch runs, on all ranks; all of it is Python."""

import subprocess
import sys
from pathlib import Path

import pytest
import snippets
from load import within

PROGRAMS = snippets.programs_with("torch")


def ranks_snippet(page: str, number: int, folder: str) -> None:
    snippets.run(page, number, folder)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_snippets_of_pytorch_run(run_ranks, tmp_path, program):
    run_ranks(program.ranks, ranks_snippet, [program.page, program.number, str(tmp_path)])


@pytest.mark.parametrize("program", snippets.programs_without_ranks(), ids=lambda program: program.title)
def test_snippets_that_start_a_job_run(tmp_path, program):
    code = f"import snippets; snippets.run({program.page!r}, {program.number}, {str(tmp_path)!r})"
    folder = Path(snippets.__file__).parent
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=within(60.0))


def test_every_snippet_has_a_framework_that_runs_it():
    assert {program.page for program in snippets.programs_without_ranks()} == {
        "docs/run.md",
        "docs/engines.md",
    }
    assert {"docs/torch.md", "docs/howto.md"} <= {program.page for program in PROGRAMS}
    assert [program.title for program in snippets.programs_with("none")] == []


def test_what_a_block_needs_goes_into_its_program(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    blocks = [
        "```python\nimport torch\n```",
        "<!-- setup:\nimport os\n-->",
        "```python\nimport torch as t\n```",
    ]
    page.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    first, second = snippets.programs(page)
    assert [code for _, code in first.pieces] == ["import torch\n"]
    assert [code for _, code in second.pieces] == ["import os\n", "import torch as t\n"]


def test_a_snippet_that_fails_names_its_line(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nimport torch\n\nundefined\n```\n", encoding="utf-8")
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    with pytest.raises(NameError) as caught:
        snippets.run("page.md", 0, str(tmp_path))
    assert caught.traceback[-1].lineno + 1 == 6
