"""Applications of Spark that are stopped while a job runs, or that hear late of their tasks."""

from pathlib import Path

import pytest
from executors import run_program


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_stopped_application_ends_its_jobs(tmp_path: Path) -> None:
    run_program("stopped_program.py", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_tasks_have_started_though_spark_tells_it_late(tmp_path: Path) -> None:
    run_program("late_news_program.py", tmp_path)
