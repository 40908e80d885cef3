"""Jobs whose ranks are started again when one fails."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import Launcher
from load import within

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


def test_a_job_within_a_start_of_another_one_has_starts_of_its_own(job: Launcher) -> None:
    status, stdout, _ = job.run("-np", "1", "sh", "-c", 'echo "start $HOROVOD_RESTART."', HOROVOD_RESTART="2")
    assert status == 0 and stdout == b"[0]<stdout>:start .\n"


def test_without_the_option_a_failure_is_the_end(job: Launcher) -> None:
    assert job.finish(job.start("-np", "2", *command(1)), 30).returncode == 3


def test_a_signal_is_the_end(job: Launcher) -> None:
    process = job.start("-np", "2", "--max-restarts", "5", *command(0, 60.0))
    _read(process, 2)
    process.send_signal(signal.SIGTERM)
    result = job.finish(process, 20)
    assert result.returncode == 128 + signal.SIGTERM and "started again" not in result.output


def test_programs_are_told_one_start_and_one_end(job: Launcher, tmp_path: Path) -> None:
    """Whoever watches the job hears of no end while it goes on."""
    file = tmp_path / "progress.json"
    options = ["-np", "2", "--max-restarts", "1", "--json", "--metrics", str(file), *command(1, 60.0)]
    process = job.start(*options)
    assert process.stdout is not None
    events = []
    while [each["event"] for each in events].count("rank") < 4:
        events.append(json.loads(process.stdout.readline()))
    pids = [each["pid"] for each in events if each["event"] == "rank"]
    deadline = time.monotonic() + within(20)
    while _ranks_of(file) != set(pids[2:]):
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.05)
    assert json.loads(file.read_text())["status"] is None  # that of the first start is none of the job
    process.send_signal(signal.SIGTERM)
    events += map(json.loads, job.finish(process, 20).stdout.splitlines())
    kinds = [each["event"] for each in events]
    assert kinds.count("start") == kinds.count("end") == kinds.count("failure") == 1
    assert kinds.index("failure") < kinds.index("restart") < kinds.index("signal") < kinds.index("end")
    assert events[-1]["status"] == 128 + signal.SIGTERM == json.loads(file.read_text())["status"]


def _ranks_of(file: Path) -> set[int]:
    """The processes that a file of metrics shows."""
    return {rank["pid"] for rank in json.loads(file.read_text())["ranks"]} if file.exists() else set()


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print("start", os.environ.get("HOROVOD_RESTART"), flush=True)
if os.environ["HOROVOD_RANK"] == "1":
    time.sleep(1.0)
    sys.exit(3)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.1)
"""


def test_a_signal_while_a_failed_start_ends_is_the_end(job: Launcher) -> None:
    options = ["-np", "2", "--max-restarts", "5", "--grace", "30", sys.executable, "-c", STUBBORN]
    process = job.start(*options)
    assert process.stdout is not None
    while b"asked" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    result = job.finish(process, 20)
    assert result.returncode == 3 and "started again" not in result.output, result.output


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
