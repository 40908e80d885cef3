"""The child of horovod.run ends with its caller, whatever the caller leaves behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from load import within

# The caller gives the child both ends of the link, so that the end of the link never tells of its own end.
CALLER = """
import os, socket, subprocess, sys
link, theirs = socket.socketpair()
ends = [theirs.fileno()] + ([link.fileno()] if sys.argv[1] == "keeps" else [])
words = [sys.executable, "-c", sys.argv[2], str(theirs.fileno()), str(os.getpid())]
child = subprocess.Popen(words, pass_fds=ends)
theirs.close()
sys.stdin.readline()
link.close()
sys.stdin.readline()
"""
CHILD = """
import os, sys, time
{change}
from horovod.runner import parent
parent.end_with(int(sys.argv[2]), int(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""
NO_PIDFD = "del os.pidfd_open; "


@pytest.fixture
def start() -> Iterator:
    """A caller, and the reading end of a pipe that its child holds."""
    processes = []

    def start(keeps: str, change: str = "") -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", CALLER, keeps, CHILD.format(change=change)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _child_ends(process: subprocess.Popen, seconds: float) -> bool:
    """It holds the pipe of stdout, like its caller."""
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    return bool(readable) and os.read(process.stdout.fileno(), 1) == b""


@pytest.mark.parametrize("change", ["", NO_PIDFD], ids=["pidfd", "no pidfd"])
def test_it_ends_with_the_process_of_the_caller(start, change):
    process = start("keeps", change)
    assert not _child_ends(process, 0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _child_ends(process, within(4.0))


def test_it_ends_when_the_caller_gives_it_up(start):
    process = start("gives up")
    process.stdin.write(b"\n")
    process.stdin.flush()
    watched = f"/proc/{process.pid}/task/{process.pid}/children"
    for _ in range(int(within(4.0) / 0.02)):
        with open(watched, encoding="ascii") as file:
            (child,) = file.read().split()
        with open(f"/proc/{child}/stat", encoding="ascii") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return
        select.select([], [], [], 0.02)
    raise AssertionError("the child goes on")
