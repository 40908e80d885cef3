"""A rank that is busy elsewhere, or slow: what the job says of it, and when it ends."""

import os
import re
import sys
import time

import pytest
from launch import MODULE, PROGRAMS, Job, Launcher
from load import within

QUICK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_HEARTBEAT_SECONDS": "0.5"}


def hang(misdeed: str, seconds: int) -> str:
    """The output of a job in which rank 1 does not come back."""
    launcher = Launcher()
    options = ["-np", "3", "--hang-timeout", str(seconds)]
    command = [*MODULE, *options, sys.executable, str(PROGRAMS / "misbehave.py"), misdeed]
    result = launcher.finish(launcher.popen(command, env={**launcher.environment, **QUICK}), within(40))
    assert result.returncode == 1, result.output
    headline = "did not submit what other ranks wait for; the job's status is 1"
    assert re.search(rf"horovodrun: rank 1 \(localhost, pid \d+\) {headline}", result.output), result.output
    assert "allreduce 'gradient'" in result.output and "not by rank 1." in result.output
    return result.output


def test_hang_timeout_names_the_rank_in_a_python_loop_and_shows_its_stack() -> None:
    output = hang("python-loop", 3)
    assert "Python stacks of rank 1" in output and "python_loop" in output
    assert "native code holds the interpreter lock" not in output


def test_a_rank_in_native_code_that_holds_the_interpreter_lock_shows_its_stack_too() -> None:
    output = hang("native-loop", 6)
    hint = re.search(
        r"\[1\] warning: .*\(pid (\d+)\) do not answer: native code holds the interpreter lock.*", output
    )
    assert hint is not None, output
    assert f"py-spy dump --native --pid {hint[1]}" in hint[0] and f"gdb -p {hint[1]}" in hint[0]
    assert re.search(r"\[1\]<stderr>:  File .*misbehave.py\", line \d+ in native_loop", output), output
    assert output.count("do not answer") == 1


@pytest.mark.slow
def test_a_slow_rank_is_named_once_a_minute_and_ends_nothing() -> None:
    job = Job(3, "misbehave.py", "slow", "620")
    result = job.finish(within(120))
    assert result.returncode == 0, result.output
    lines = [line for line in result.output.splitlines() if " is late: " in line]
    assert len(lines) == 1, result.output
    found = re.search(
        r"rank 1 is late: p50 (\d+)\.\d ms, \d+ times, at most [\d.]+ ms on 'gradient'", lines[0]
    )
    assert found is not None and int(found[1]) >= 20, lines


WRITER = """
import sys, time
from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import operations
hvd.init()
for step in range(40):
    if hvd.rank() == 1:
        for number in range(100):
            sys.stderr.write(f"line {100 * step + number} {'x' * 990}\\n")
    operations.allreduce_(bytearray(1), op=1, name="x")
    time.sleep(0.02)
hvd.shutdown()
"""


@pytest.mark.slow
def test_a_reader_that_pauses_holds_back_the_ranks_and_ends_nothing() -> None:
    """As Ctrl-S or a pager: rank 1 waits in its prints, and meanwhile its engine would like to write, too."""
    launcher = Launcher()
    patience = {"HOROVOD_PEER_TIMEOUT_SECONDS": "2", "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    environment = {**launcher.environment, **QUICK, **patience}
    process = launcher.popen([*MODULE, "-np", "2", sys.executable, "-c", WRITER], env=environment)
    assert process.stderr is not None
    os.read(process.stderr.fileno(), 1)  # it runs; from here on nobody reads
    time.sleep(4 + within(1))  # twice the peer timeout, when the pipes are full
    assert process.poll() is None
    result = launcher.finish(process, 60)
    assert result.returncode == 0, result.output[-3000:]
    lines = re.findall(r"^\[1\]<stderr>:line (\d+) x{990}$", "[" + result.stderr.decode(), re.MULTILINE)
    assert list(map(int, lines)) == list(range(len(lines))) and len(lines) in (3999, 4000)
