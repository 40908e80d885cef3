"""Starts real jobs for the tests: horovodrun with a program of tests/mp/programs."""

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

PROGRAMS = Path(__file__).parent / "programs"
MARK = "HVD_TEST_MARK"


@dataclass
class Job:
    """A running horovodrun; everything that descends from it carries ``mark`` in its environment."""

    process: subprocess.Popen[str]
    mark: str

    def survivors(self) -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if _has_mark(p, self.mark)]

    def finish(self, timeout: float) -> "Result":
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            stacks = "\n".join(_stack(p.pid) for p in self.survivors())
            for process in self.survivors():
                process.kill()
            output, _ = self.process.communicate()
            raise AssertionError(f"the job did not end within {timeout} s\n{output}\n{stacks}") from None
        return Result(self.process.returncode, output)


@dataclass
class Result:
    returncode: int
    output: str  # stdout and stderr, as a person sees them


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _stack(pid: int) -> str:
    tool = Path(sys.executable).with_name("py-spy")  # of this environment, which need not be on PATH
    if not tool.exists():
        return f"no stack of process {pid}: py-spy is not installed"
    dump = subprocess.run([tool, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
    return dump.stdout or dump.stderr


def start(ranks: int, program: str, *arguments: str, env: dict[str, str] | None = None) -> Job:
    mark = uuid.uuid4().hex
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {}), MARK: mark}
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks)]
    command += [sys.executable, str(PROGRAMS / program), *arguments]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return Job(process, mark)


def horovodrun(
    ranks: int, program: str, *arguments: str, env: dict[str, str] | None = None, timeout: float = 120
) -> Result:
    return start(ranks, program, *arguments, env=env).finish(timeout)
