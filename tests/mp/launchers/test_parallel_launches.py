"""Many jobs that start at one moment on one host: each has a store and a MASTER_PORT of its own."""

import re

import pytest
from launch import Job

JOBS = 50


@pytest.mark.full
def test_launches_in_parallel_do_not_clash() -> None:
    jobs = [Job(2, "master_port.py", env={"HOROVOD_START_TIMEOUT": "120"}) for _ in range(JOBS)]
    results = [job.finish(120) for job in jobs]
    for result in results:
        assert result.returncode == 0, result.output
        assert len(re.findall("has met its own job", result.output)) == 2, result.output
