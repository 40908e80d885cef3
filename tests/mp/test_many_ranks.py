"""Many ranks on one host, with the number of open files that most systems allow by default."""

import re
import shlex
import sys

import pytest
from launch import MODULE, PROGRAMS, Launcher

OPEN_FILES = 1024


@pytest.mark.parametrize("ranks", [64, pytest.param(256, marks=pytest.mark.full)])
def test_many_ranks_start_reduce_and_end(ranks: int) -> None:
    launcher = Launcher()
    program = [sys.executable, str(PROGRAMS / "many_ranks.py")]
    horovodrun = [*MODULE, "-np", str(ranks), "--start-timeout", "100", *program]
    command = f"ulimit -Hn {OPEN_FILES}; ulimit -Sn {OPEN_FILES}; exec {shlex.join(horovodrun)}"
    environment = {**launcher.environment, "OMP_NUM_THREADS": "1"}
    result = launcher.finish(launcher.popen(["bash", "-c", command], env=environment), 60)
    assert result.returncode == 0, result.output
    (line,) = re.findall(rf"{ranks} ranks: init .*", result.output)
    (descriptors,) = re.findall(r"at most (\d+) descriptors", line)
    # Everybody's waker, and besides it only what grows with the logarithm of the ranks.
    assert ranks <= int(descriptors) < ranks + 40, line
    launcher.wait_until_gone(5)
