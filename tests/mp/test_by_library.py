"""Every collective by whatever carries it between ranks of horovodrun; by MPI: launchers/test_by_mpi.py."""

import re

import pytest
from launch import Job

from horovod.bootstrap import libraries

# By what carries the tensors: the thread that must run.
CARRIERS = [
    pytest.param("host", "hvd-engine", id="host"),
    pytest.param(
        "GLOO",
        "hvd-gloo",
        id="gloo",
        marks=pytest.mark.skipif(not libraries.installed("gloo"), reason="horovod was built without Gloo"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "transport"),
    [
        (2, "shm"),
        pytest.param(3, "tcp", marks=pytest.mark.full),
        pytest.param(4, "shm", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize(("operations", "thread"), CARRIERS)
def test_every_collective_is_right(operations: str, thread: str, ranks: int, transport: str) -> None:
    environment = {"HOROVOD_TRANSPORT": transport, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    job = Job(ranks, "by_library.py", thread, env={**environment, libraries.VARIABLE: operations})
    result = job.finish(120)
    assert result.returncode == 0, result.output
    assert len(re.findall(r"rank \d is done", result.output)) == ranks, result.output
