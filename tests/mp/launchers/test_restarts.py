"""Jobs whose ranks are started again when one fails."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import Launcher

PROGRAM = """
import os, sys, time
from horovod.common import basics as hvd
hvd.init()
start = int(os.environ.get("HOROVOD_RESTART", "0"))
print("start", start, "rank", hvd.rank(), flush=True)
if hvd.rank() == 1 and start < int(sys.argv[1]):
    sys.exit(3 + start)
time.sleep(float(sys.argv[2]))
"""


def command(failures: int, seconds: float = 0.0) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(failures), str(seconds)]


@pytest.mark.parametrize(("failures", "status"), [(0, 0), (2, 0), (3, 5)])
def test_ranks_start_again_until_they_do_not_fail(
    job: Launcher, tmp_path: Path, failures: int, status: int
) -> None:
    kept = tmp_path / "kept"
    options = ["-np", "2", "--max-restarts", "2", "--output-filename", str(kept), *command(failures)]
    result = job.finish(job.start(*options), 60)
    starts = min(failures, 2) + 1
    assert result.returncode == status, result.output
    lines = [line.partition(">:")[2] for line in result.stdout.decode().splitlines()]
    assert sorted(lines) == [f"start {start} rank {rank}" for start in range(starts) for rank in range(2)]
    assert result.output.count("all ranks are started again") == starts - 1
    folders = [kept, *(kept / f"restart.{number}" for number in range(1, starts))]
    for start, folder in enumerate(folders):
        assert (folder / "rank.0" / "stdout").read_text() == f"start {start} rank 0\n"


def test_without_the_option_a_failure_is_the_end(job: Launcher) -> None:
    assert job.finish(job.start("-np", "2", *command(1)), 30).returncode == 3


def test_a_signal_is_the_end(job: Launcher) -> None:
    process = job.start("-np", "2", "--max-restarts", "5", *command(0, 60.0))
    _read(process, 2)
    process.send_signal(signal.SIGTERM)
    result = job.finish(process, 20)
    assert result.returncode == 128 + signal.SIGTERM and "started again" not in result.output


def test_the_time_is_that_of_all_starts(job: Launcher) -> None:
    begin = time.monotonic()
    options = ["-np", "2", "--max-restarts", "100", "--timeout", "6", "--grace", "1", *command(1000, 0.5)]
    result = job.finish(job.start(*options), 60)
    assert result.returncode == 124 and "started again" in result.output, result.output
    assert time.monotonic() - begin > 6.0


def _read(process: "subprocess.Popen[bytes]", lines: int) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
