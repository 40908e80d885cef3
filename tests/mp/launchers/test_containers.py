"""Each rank runs in namespaces of its own, as containers have them that stand between a launcher and the
script: the rank sees another /proc, or may not look into its launcher.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import Launcher
from other_launchers import command_of
from rank_scripts import read_until

OWN_PROCESSES = ("--user", "--pid", "--fork", "--mount-proc")
SPACES = {
    "as root of its own": ("--user", "--map-root-user"),
    "as a user without a name": ("--user",),
    "with processes of its own": OWN_PROCESSES,
}
WORK = """
import plain_horovod as hvd
hvd.init()
value = hvd.allreduce_(bytearray([hvd.rank() + 1]), op=1, name="x")
print(f"rank {hvd.rank()} of {hvd.local_size()} has {value[0]}\\n", end="", flush=True)
"""
PYTHON = f"{sys.executable} -c 'import os; exec(os.environ[\"WORK\"])'"
WAITS = WORK + "import time; time.sleep(600)"


def _refusal() -> str:
    command = ["unshare", *OWN_PROCESSES, "true"]
    if shutil.which(command[0]) is None:
        return "unshare is not installed here"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return f"no namespaces of users here: {done.stderr.strip()}" if done.returncode else ""


pytestmark = pytest.mark.skipif(bool(_refusal()), reason=_refusal() or "they are here")


def _within(space: tuple[str, ...], program: str) -> list[str]:
    return ["unshare", *space, sys.executable, "-c", program]


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_ranks_find_each_other(job: Launcher, space: tuple[str, ...]) -> None:
    status, stdout, stderr = job.run("-np", "2", *_within(space, WORK))
    assert status == 0, stderr.decode()
    for rank in range(2):
        assert b"rank %d of 2 has 3" % rank in stdout


def test_workers_of_an_elastic_job_do(job: Launcher) -> None:
    options = ("-np", "2", "--min-np", "2", "--max-np", "2")
    status, stdout, stderr = job.run(*options, *_within(OWN_PROCESSES, WORK))
    assert status == 0, stderr.decode()
    assert stdout.count(b"of 2 has 3") == 2


def test_the_environment_shows_no_secret(job: Launcher) -> None:
    process = job.start("-np", "2", *_within(OWN_PROCESSES, WAITS))
    read_until(process, b"has 3", 2)
    entries = {
        entry
        for pid in job.survivors()
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if entry.startswith(b"HOROVOD_SECRET")
    }
    assert {entry.partition(b"=")[0] for entry in entries} == {
        b"HOROVOD_SECRET_FILE",
        b"HOROVOD_SECRET_SOCKET",
    }
    process.send_signal(signal.SIGTERM)
    job.finish(process, 20)


def test_none_is_left_when_launcher_and_guard_are_killed(job: Launcher) -> None:
    """The rank is the first process of its namespace, which its own signals do not end."""
    process = job.start("-np", "2", *_within(OWN_PROCESSES, WAITS))
    read_until(process, b"has 3", 2)
    guards = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "guard.py"], capture_output=True, check=True
    )
    for pid in (*map(int, guards.stdout.split()), process.pid):
        os.kill(pid, signal.SIGKILL)
    job.finish(process, 20)
    job.wait_until_gone(10)


@pytest.mark.parametrize(
    "command",
    [_within(OWN_PROCESSES, WORK), ["sh", "-c", f"unshare --user {PYTHON} || exit; true"]],
    ids=["out of sight", "wrapped"],
)
def test_ranks_of_torchrun_find_each_other(job: Launcher, command: list[str]) -> None:
    """By its store where they cannot see it, and past a wrapper that they cannot look into."""
    torchrun = [*command_of("torchrun", 2), "--no-python"]
    environment = {**job.environment, "WORK": WORK}
    result = job.finish(job.popen([*torchrun, *command], env=environment), 90)
    assert result.returncode == 0, result.output
    for rank in range(2):
        assert f"rank {rank} of 2 has 3" in result.output
