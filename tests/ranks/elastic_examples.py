"""Runs an elastic example, and kills one of its ranks in the middle of it."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

from launch import ROOT, Launcher
from load import within


def survives_a_kill(name: str, *arguments: str, seconds: float = 100) -> str:
    """What the job prints; it has to end well, with fewer ranks for a while or a new one."""
    launcher = Launcher()
    horovodrun = Path(sys.executable).with_name("horovodrun")
    command = [str(horovodrun), "-np", "2", "--min-np", "1", sys.executable, str(ROOT / "examples" / name)]
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = launcher.popen([*command, *arguments], env={**launcher.environment, **quiet}, text=True)
    guard = threading.Timer(within(seconds), process.kill)
    guard.start()
    assert process.stdout is not None
    lines, victim = [], 0
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"rank 1 of 2, pid (\d+)", line):
            victim = victim or int(found[1])
        if victim > 0 and re.search(r"^\[0\]<stdout>:epoch 2:", line):
            os.kill(victim, signal.SIGKILL)
            victim = -1
    assert process.stderr is not None
    output = "".join(lines) + process.stderr.read()
    guard.cancel()
    assert process.wait() == 0 and victim == -1, output
    assert "rank 1 (localhost) was killed by SIGKILL" in output
    launcher.wait_until_gone(5)
    return output
