"""An application of Spark that is stopped while a job runs in it."""

from pathlib import Path

import pytest
from executors import run_program


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_stopped_application_ends_its_jobs(tmp_path: Path) -> None:
    run_program("stopped_program.py", tmp_path)
