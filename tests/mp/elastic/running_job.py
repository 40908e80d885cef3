"""Elastic jobs that go on until something is done to them, with what their workers tell in a log."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elastic_job import TRAINS
from launch import MODULE, PROGRAMS, Launcher
from load import within

LEAVES = re.compile(r"leaves with status (\d+) step (\d+) worker (\d+)")


def begin(
    folder: Path, *options: str, steps: int = 100_000, seconds: float = 0.01, **changes: str
) -> tuple[Launcher, subprocess.Popen[bytes], Path]:
    """Three ranks; ``seconds`` is how long a step takes, ``changes`` are added to the environment."""
    launcher, log = Launcher(), folder / "log"
    program = (
        sys.executable,
        str(PROGRAMS / "elastic_steps.py"),
        str(steps),
        "never",
        "-1",
        "64",
        str(seconds),
    )
    command = [*MODULE, "-np", "3", "--min-np", "1", *options, *program]
    environment = {**launcher.environment, "OMP_NUM_THREADS": "1", "HVD_TEST_LOG": str(log), **changes}
    log.touch()
    return launcher, launcher.popen(command, env=environment), log


def wait_for(condition: Callable[[str], bool], log: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + within(seconds)
    while not condition(log.read_text()):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def all_train(size: int) -> Callable[[str], bool]:
    return lambda text: (
        {int(rank) for rank, of, *_ in TRAINS.findall(text) if int(of) == size} == set(range(size))
    )


def pid_of(launcher: Launcher, worker: int) -> int:
    name = "HOROVOD_ELASTIC_WORKER"
    program = "elastic_steps.py"
    found = launcher.those(lambda p: p.environ().get(name) == str(worker) and program in "".join(p.cmdline()))
    assert found, f"worker {worker} does not run"
    return found[0].pid
