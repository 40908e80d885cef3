"""Starts real jobs for the tests: horovodrun with any command. Most tests take the quicker run_ranks."""

import io
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from load import within

from horovod.bootstrap.store.remarks import never_started

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "mp" / "programs"
MODULE = (sys.executable, "-m", "horovod.runner.launch")
_MARKER = "HVD_TEST_MARK"
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@dataclass
class Result:
    """How a job has ended."""

    returncode: int
    stdout: bytes
    stderr: bytes  # empty when the job was started with both streams in one pipe

    @property
    def output(self) -> str:
        """What a person sees."""
        return (self.stdout + self.stderr).decode(errors="replace")


class Launcher:
    """Starts horovodrun; every process that descends from it carries a marker in its environment."""

    def __init__(self) -> None:
        self.marker = f"{_MARKER}={uuid.uuid4().hex}".encode()
        paths = [str(ROOT / "frameworks"), str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
        name, value = self.marker.decode().split("=")
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), name: value}
        # By default a stopped rank is waited for longer than a test may last.
        self.environment.setdefault("HOROVOD_STOPPED_TIMEOUT_SECONDS", "6")

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen[bytes]:
        """horovodrun with these arguments; ``changes`` are added to the environment."""
        return self.popen([*MODULE, *arguments], env={**self.environment, **changes})

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Any command, with its streams in pipes unless ``options`` say otherwise."""
        defaults = {"env": self.environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, preexec_fn=_hear_signals, **{**defaults, **options})

    def run(self, *arguments: str, **changes: str) -> tuple[int, bytes, bytes]:
        """Status, standard output and standard error of a whole job."""
        result = self.finish(self.start(*arguments, **changes), 30)
        return result.returncode, result.stdout, result.stderr

    def finish(self, process: subprocess.Popen[bytes], timeout: float) -> Result:
        """Waits for the end; a job that does not end fails the test with the stacks of its processes."""
        ahead = _read_ahead(process.stdout)
        try:
            stdout, stderr = process.communicate(timeout=within(timeout))
        except subprocess.TimeoutExpired:
            stacks = "\n".join(_stack(pid) for pid in self.survivors())
            self._end_all()
            output = b"".join(filter(None, process.communicate())).decode(errors="replace")
            raise AssertionError(f"the job did not end within {timeout} s\n{output}\n{stacks}") from None
        return Result(process.returncode, ahead + (stdout or b""), stderr or b"")

    def end_within(self, process: subprocess.Popen[bytes], timeout: float) -> int | None:
        """The status of a job whose output somebody else reads; None: it did not end, and was ended."""
        try:
            return process.wait(within(timeout))
        except subprocess.TimeoutExpired:
            self._end_all()
            process.wait()
            return None

    def survivors(self) -> list[int]:
        """All live processes with the marker."""
        return [int(folder.name) for folder in self._folders()]

    def those(self, are_wanted: Callable[[psutil.Process], Any]) -> list[psutil.Process]:
        """All with the marker of which this holds; those that end meanwhile are passed over."""
        found = []
        for pid in self.survivors():
            with suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
                process = psutil.Process(pid)
                if are_wanted(process):
                    found.append(process)
        return found

    def census(self) -> list[str]:
        """Their command lines."""
        return [command_line(folder).replace(b"\0", b" ").decode() for folder in self._folders()]

    def wait_until_gone(self, seconds: float) -> None:
        """Fails when one of them is still there after ``seconds``; none stays for the tests that follow."""
        deadline = time.monotonic() + within(seconds)
        while left := self.census():
            if time.monotonic() > deadline:
                self._end_all()
                raise AssertionError(left)
            time.sleep(0.02)

    def _end_all(self) -> None:
        for pid in self.survivors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _folders(self) -> Iterator[Path]:
        return (folder for folder in Path("/proc").glob("[0-9]*") if carries(folder, self.marker))


def interrupted(program: str, path: Path, seconds: float, **changes: str) -> Result:
    """How a job of two ranks ends by Ctrl-C when both have printed "ready", and one more waits in a step for
    the other. ``program``: its text, for which ``path`` is. Nothing may be left of it ``seconds`` later.
    """
    path.write_text(program)
    launcher = Launcher()
    process = launcher.start("-np", "2", sys.executable, str(path), **changes)
    assert process.stdout is not None
    seen = b""
    while seen.count(b"ready") < 2:
        line = process.stdout.readline()
        assert line, seen + launcher.finish(process, 10).stderr
        seen += line
    time.sleep(0.5)  # until it waits
    process.send_signal(signal.SIGINT)
    result = launcher.finish(process, seconds)
    launcher.wait_until_gone(1)
    return result


def alone(ranks: int) -> bytes:
    """What horovodrun says at the end of a job whose ``ranks`` do not call ``hvd.init()``."""
    return f"horovodrun: warning: {never_started(ranks)}\n".encode()


class Job:
    """A program of tests/mp/programs under horovodrun, with both streams in one pipe."""

    def __init__(self, ranks: int, program: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.launcher = Launcher()
        command = [*MODULE, "-np", str(ranks), sys.executable, str(PROGRAMS / program), *arguments]
        environment = {**self.launcher.environment, "OMP_NUM_THREADS": "1", **(env or {})}
        self.process = self.launcher.popen(
            command, env=environment, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )

    def survivors(self) -> list[int]:
        """The processes of the job that live."""
        return self.launcher.survivors()

    def finish(self, timeout: float) -> Result:
        """Waits for the end."""
        return self.launcher.finish(self.process, timeout)


def _read_ahead(stream: IO[bytes] | None) -> bytes:
    """What ``readline`` has taken beyond its line: ``communicate`` reads from the descriptor."""
    if not isinstance(stream, io.BufferedReader) or stream.closed:
        return b""
    os.set_blocking(stream.fileno(), False)
    try:
        return stream.peek()
    finally:
        os.set_blocking(stream.fileno(), True)


def carries(folder: Path, marker: bytes) -> bool:
    """Whether the process of a folder in /proc has the marker; those that have ended show none."""
    try:
        return marker in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def command_line(folder: Path) -> bytes:
    """Of the process of a folder in /proc."""
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


def _hear_signals() -> None:
    """Whatever runs the tests may ignore these (nohup does), and children inherit that."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _stack(pid: int) -> str:
    tool = Path(sys.executable).with_name("py-spy")  # of this environment, which need not be on PATH
    if not tool.exists():
        return f"no stack of process {pid}: py-spy is not installed"
    dump = subprocess.run([tool, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
    return dump.stdout or dump.stderr
