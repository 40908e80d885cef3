"""The Python code in README.md and docs/ that uses JAX runs, on all ranks."""

import check_jax  # noqa: F401  # skips
import pytest
import snippets

PROGRAMS = snippets.programs_with("jax")


def ranks_snippet(page: str, number: int, folder: str) -> None:
    snippets.run(page, number, folder)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_snippets_run(run_ranks, tmp_path, program):
    run_ranks(program.ranks, ranks_snippet, [program.page, program.number, str(tmp_path)], finalize=True)


def test_there_are_some():
    assert "docs/jax.md" in {program.page for program in PROGRAMS}
