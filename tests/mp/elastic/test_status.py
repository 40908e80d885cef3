"""The status of an elastic job some of whose workers have ended with 0."""

from pathlib import Path

import pytest
from launch import Launcher
from running_job import begin

AFTER_THE_TRAINING = """
from horovod.common import basics
shutdown = basics.shutdown
def fail():
    shutdown()
    if os.environ["HOROVOD_ELASTIC_WORKER"] == "1":
        time.sleep(0.5)
        os._exit(7)
basics.shutdown = fail
"""
AT_A_COMMIT = """
from horovod.elastic.state import ObjectState
commit = ObjectState.commit
def leave(self):
    commit(self)
    if os.environ["HOROVOD_ELASTIC_WORKER"] == "1" and self.step == 5:
        os._exit(0)
ObjectState.commit = leave
"""


@pytest.mark.parametrize(
    ("what", "status", "line"),
    [
        (AFTER_THE_TRAINING, 7, "rank 1 has failed, and the others have ended in good order"),
        (
            AT_A_COMMIT,
            1,
            "a worker has ended with exit status 0, and of those who still trained 2 of at least 3",
        ),
    ],
    ids=["after the training", "at a commit"],
)
def test_it_is_0_only_for_work_that_is_done(tmp_path: Path, what: str, status: int, line: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import os, time\n{what}")
    path = f"{tmp_path}:{Launcher().environment['PYTHONPATH']}"
    launcher, job, _ = begin(tmp_path, "--min-np=3", PYTHONPATH=path, steps=20)
    result = launcher.finish(job, 30)
    assert result.returncode == status and line in result.output, result.output
    launcher.wait_until_gone(5)
