"""An application of Spark that is stopped while a job runs in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from load import within

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_stopped_application_ends_its_jobs(tmp_path: Path) -> None:
    """In a process of its own: the other tests share an application."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "ranks")])}
    done = subprocess.run(
        [sys.executable, str(HERE / "stopped_program.py")],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout
