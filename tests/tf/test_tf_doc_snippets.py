"""The Python code in README.md and docs/ that uses TensorFlow or Keras runs, on all ranks."""

import pytest
import snippets

PROGRAMS = snippets.programs_with("tensorflow", "keras")


def ranks_snippet(page: str, number: int, folder: str) -> None:
    snippets.run(page, number, folder)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_snippets_run(run_ranks, tmp_path, program):
    run_ranks(program.ranks, ranks_snippet, [program.page, program.number, str(tmp_path)])


def test_there_are_some():
    assert {"docs/tensorflow.md", "docs/keras.md"} <= {program.page for program in PROGRAMS}
