"""A job on a thread, and the processes of the executors that it runs on."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from load import within

HERE = Path(__file__).resolve().parent


def run_program(name: str, folder: Path) -> None:
    """Runs a program of this folder in a process of its own, where the tests' application is not."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "ranks")])}
    done = subprocess.run(
        [sys.executable, str(HERE / name)],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout


class Step(NamedTuple):
    """A step of ``spark_programs.trains_until``."""

    number: int
    time: float
    ranks: list[int]  # their processes


class Running:
    """A job on a thread; ``run`` gets a stream for the output of the ranks."""

    def __init__(self, run: Callable[[io.StringIO], Any]) -> None:
        self.result: Any = None
        self.output = io.StringIO()
        self._run = run
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            self.result = self._run(self.output)
        except Exception as error:
            self.result = error

    def wait_for(self, ranks: int, seconds: float = 30) -> list[psutil.Process]:
        """The processes of so many ranks, once they are there, in the order in which they have come."""
        end = time.monotonic() + within(seconds)
        while time.monotonic() < end and self._thread.is_alive():
            pids = re.findall(r"pid (\d+) is there", self.output.getvalue())
            if len(pids) >= ranks:
                return [psutil.Process(int(pid)) for pid in pids]
            time.sleep(0.02)
        raise AssertionError(f"not {ranks} ranks: {self.output.getvalue()}, {self.result}")

    def steps(self) -> list[Step]:
        """Those that rank 0 has told."""
        pattern = r"\[0\]<stdout>:step (\d+) of \d+ ranks at (\S+) with \[(.*)\]"
        found = re.findall(pattern, self.output.getvalue())
        return [Step(int(n), float(when), [int(pid) for pid in pids.split(",")]) for n, when, pids in found]

    def wait_for_step(self, ranks: int, without: int | None = None, seconds: float = 60) -> Step:
        """The next step of so many ranks at least, and without one of them."""
        seen, end = len(self.steps()), time.monotonic() + within(seconds)
        while time.monotonic() < end and self._thread.is_alive():
            for step in self.steps()[seen:]:
                if len(step.ranks) >= ranks and without not in step.ranks:
                    return step
            time.sleep(0.02)
        raise AssertionError(f"no step of {ranks} ranks: {self.output.getvalue()[-2000:]}, {self.result}")

    def finish(self, seconds: float = 30) -> Any:
        """What came of it."""
        self._thread.join(within(seconds))
        assert not self._thread.is_alive()
        return self.result


def executor_of(rank: psutil.Process) -> psutil.Process:
    """The Java machine below which a rank runs."""
    (found,) = (each for each in rank.parents() if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()))
    return found


def wait_until_gone(processes: list[psutil.Process], seconds: float = 10) -> None:
    """All have ended."""
    _, alive = psutil.wait_procs(processes, within(seconds))
    assert not alive, alive
