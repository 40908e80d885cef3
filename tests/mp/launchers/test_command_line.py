"""Options of horovodrun whose effect only running ranks show."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import launch
import pytest
from launch import MODULE, Launcher, alone
from load import within


def test_exported_variables_reach_the_ranks_and_their_values_no_command_line() -> None:
    look = (
        "import os, pathlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from launch import command_line\n"
        "lines = [command_line(folder) for folder in pathlib.Path('/proc').glob('[0-9]*')]\n"
        "found = any(os.environ['TOKEN'].encode() in line for line in lines)\n"
        "print(os.environ['TOKEN'], os.environ['SEED'], os.environ['OMP_NUM_THREADS'], found)"
    )
    script = [sys.executable, "-c", look, str(Path(launch.__file__).parent)]
    options = ["-x", "TOKEN", "--env", "SEED=a b=c", "--env=OMP_NUM_THREADS=7"]
    job = Launcher()
    status, stdout, stderr = job.run("-np", "2", *options, *script, TOKEN="planted-3141", SEED="other")
    assert (status, stderr) == (0, alone(2))
    assert sorted(stdout.splitlines()) == [
        f"[{rank}]<stdout>:planted-3141 a b=c 7 False".encode() for rank in range(2)
    ]


STUCK = """
import ctypes, os, time
import plain_horovod as hvd

def wait_in_collective():
    hvd.allreduce_(bytearray(1))

def hold_the_lock():
    mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

hvd.init()
wait_in_collective() if hvd.rank() == 0 else hold_the_lock()
"""
NEVER_STARTED = """
import os, time

def load_for_ever():
    time.sleep(600)

os.environ["HOROVOD_RANK"] == "0" and os.execvp("sleep", ["sleep", "600"])
load_for_ever()
"""


def stacks_at_timeout(folder: Path, program: str, seconds: str) -> tuple[dict[int, str], str]:
    """What each rank shows on stderr, and all output, of a job of two that takes too long."""
    (folder / "stuck.py").write_text(program)
    job = Launcher()
    options = ["-np", "2", "--timeout", seconds, "--grace", "1", str(folder / "stuck.py")]
    result = job.finish(job.start(*options, OMP_NUM_THREADS="1"), 60)
    job.wait_until_gone(1.0)
    assert result.returncode == 124 and "has not ended within --timeout" in result.output, result.output
    assert "failed first" not in result.output
    lines = result.stderr.decode().splitlines()
    shown = {rank: "\n".join(line for line in lines if line.startswith(f"[{rank}]")) for rank in range(2)}
    return shown, result.output


@pytest.mark.slow
def test_after_the_timeout_all_ranks_show_where_they_are(tmp_path: Path) -> None:
    shown, output = stacks_at_timeout(tmp_path, STUCK, f"{within(6):.0f}")
    for rank, call in ((0, "wait_in_collective"), (1, "hold_the_lock")):
        assert "the stacks of process" in shown[rank] and f"in {call}" in shown[rank], output


def test_ranks_that_have_not_started_show_what_can_be_known(tmp_path: Path) -> None:
    shown, output = stacks_at_timeout(tmp_path, NEVER_STARTED, f"{within(1):.0f}")
    assert "shows no stacks; sleep is in state S (sleeping)" in shown[0], output
    assert "in load_for_ever" in shown[1], output


@pytest.mark.parametrize("seconds", ["60", "2592000", "1e11"])
def test_a_job_that_ends_in_time_has_its_own_status(seconds: str) -> None:
    job = Launcher()
    status, _, stderr = job.run("-np", "2", "--timeout", seconds, sys.executable, "-c", "raise SystemExit(3)")
    assert status == 3 and b"--timeout" not in stderr


def test_ranks_have_as_long_to_end_as_grace_says() -> None:
    stubborn = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "print('here', flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end: time.sleep(0.1)\n"
    )
    job = Launcher()
    process = job.start("-np", "1", "--grace", "0.5", sys.executable, "-c", stubborn)
    assert process.stdout is not None and b"here" in process.stdout.readline()
    begin = time.monotonic()
    process.terminate()
    result = job.finish(process, 20)
    assert result.returncode == 143 and b"asked" in result.stdout
    assert time.monotonic() - begin < within(4)


EVENTFUL = (
    "import os, sys; os.write(1, b'out \\xff\\n'); os.write(2, b'err'); sys.exit(3 * int(os.environ['RANK']))"
)


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


@pytest.mark.parametrize("way", ["json", "one pipe", "file"])
def test_events_tell_what_happens(tmp_path: Path, way: str) -> None:
    file = tmp_path / "events.jsonl"
    options = ["--events", str(file)] if way == "file" else ["--json"]
    job = Launcher()
    command = [*MODULE, "-np", "2", "--verbose", *options, sys.executable, "-c", EVENTFUL]
    errors = subprocess.STDOUT if way == "one pipe" else subprocess.PIPE
    result = job.finish(job.popen(command, stderr=errors), 30)
    text = file.read_bytes() if way == "file" else result.stdout
    assert result.returncode == 3 and text.isascii()
    assert (result.stderr == b"") == (way != "file")
    events = [json.loads(line) for line in text.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[-1] == "end" and "start" in kinds[:2] and "message" in kinds
    assert events[-1]["status"] == 3 and of_kind(events, "start")[0]["hosts"] == ["localhost"] * 2
    assert {event["rank"] for event in of_kind(events, "rank") if event["pid"] > 1} == {0, 1}
    outputs = {(each["rank"], each["stream"], each["text"]) for each in of_kind(events, "output")}
    assert outputs == {
        (rank, *each) for rank in range(2) for each in (("stdout", "out \ufffd"), ("stderr", "err"))
    }
    assert {each["rank"]: each["exit_status"] for each in of_kind(events, "exit")} == {0: 0, 1: 3}
    failure = of_kind(events, "failure")[0]
    assert (failure["rank"], failure["exit_status"], failure["cause"]) == (1, 3, "exit")
    if way == "file":
        assert b"[1]<stdout>:out \xff\n" in result.stdout and b"failed first" in result.stderr


def test_a_job_that_cannot_start_is_an_event_too(tmp_path: Path) -> None:
    missing = "no-such-host.invalid"
    command = ("--json", "-np", "1", "-H", f"{missing}:1", "--start-timeout", "20", "true")
    status, stdout, stderr = Launcher().run(*command)
    said, end = (json.loads(line) for line in stdout.splitlines())
    assert status != 0 and (end["event"], end["status"]) == ("end", status)
    assert said["event"] == "message" and missing in said["text"] and missing.encode() in stderr


def test_events_go_to_no_file_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    status, _, stderr = Launcher().run("-np", "1", "--events", str(tmp_path / "link"), "true")
    assert status == 2 and b"is a symbolic link" in stderr and not (tmp_path / "target").exists()


def test_what_has_no_effect_is_a_warning(job: Launcher) -> None:
    result = job.finish(job.start("-np", "1", "--num-nccl-streams", "2", "--reset-limit=3", "true"), 30)
    assert result.returncode == 0 and result.output.count("horovodrun: warning: ") == 2, result.output
    assert "warning: --num-nccl-streams has no effect: this version does not steer NCCL" in result.output


STARTS_LATE = """
import os, time
import plain_horovod as hvd
time.sleep(1.0 * int(os.environ["HOROVOD_RANK"]))
hvd.init()
"""


def test_times_that_are_none_end_no_job() -> None:
    """The launcher takes the default, as the ranks do, which say so."""
    settings = {"HOROVOD_START_TIMEOUT": "-5", "HOROVOD_STOPPED_TIMEOUT_SECONDS": "inf"}
    job = Launcher()
    result = job.finish(job.start("-np", "2", sys.executable, "-c", STARTS_LATE, **settings), 60)
    assert result.returncode == 0, result.output
    for name, value in settings.items():
        assert f"{name}={value}: expected seconds from" in result.output
