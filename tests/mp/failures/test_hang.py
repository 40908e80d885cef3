"""A rank that is busy elsewhere, or slow: what the job says of it, and when it ends."""

import re
import sys

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
