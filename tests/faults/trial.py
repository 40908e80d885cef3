"""One job under horovodrun, watched from its start to what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil
from launch import MODULE, Launcher
from load import within

PROGRAMS = Path(__file__).with_name("programs")
REPORT_LINES = 12
LEFT_BEHIND_SECONDS = 5.0
WRONG_RESULT = "WRONG RESULT"
SHARED_MEMORY = Path("/dev/shm")


class Trial:
    """A job whose ranks run a function ("scene") of a file in ``programs``.

    It has a folder for temporary files and a secret of its own, so that what it leaves behind and what it
    gives away can be told from what others do on the machine.
    """

    def __init__(
        self,
        ranks: int,
        scene: str,
        *arguments: object,
        options: Sequence[str] = (),
        env: dict[str, str] | None = None,
        wrap: Sequence[str] = (),
        cwd: str | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        program, _, function = scene.partition(":")
        words = [sys.executable, str(PROGRAMS / f"{program}.py"), function, *map(str, arguments)]
        self.ranks = ranks
        self.launcher = Launcher()
        self.folder = Path(tempfile.mkdtemp(prefix="fault-"))
        self.canary = f"canary-{uuid.uuid4().hex}"
        self.seconds = 0.0
        self.fault_at: float | None = None
        self._text = bytearray()
        self._grown = threading.Condition()
        self._shared_memory = _shared_memory()
        environment = {
            **self.launcher.environment,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.folder),
            "FAULT_API_KEY": self.canary,
            **(env or {}),
        }
        self.process = self.launcher.popen(
            [*wrap, *MODULE, "-np", str(ranks), *options, *words],
            env=environment, stderr=subprocess.STDOUT, stdin=stdin, cwd=cwd,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What has been written so far, by the launcher and the ranks."""
        with self._grown:
            return self._text.decode(errors="replace")

    def wait_for(self, pattern: str, count: int = 1, timeout: float = 15) -> list[re.Match[str]]:
        """Waits until the output has that many matches, and returns them."""
        deadline = time.monotonic() + within(timeout)
        while len(found := list(re.finditer(pattern, self.output))) < count:
            assert time.monotonic() < deadline, f"{pattern!r} did not appear:\n{self.output}"
            assert self._reader.is_alive() or self.process.poll() is None, f"no {pattern!r}:\n{self.output}"
            with self._grown:
                self._grown.wait(0.05)
        return found

    def pids(self) -> dict[int, int]:
        """The process of every rank, once all have said so."""
        found = self.wait_for(r"rank (\d+) is process (\d+)", self.ranks)
        return {int(match[1]): int(match[2]) for match in found}

    def running(self) -> dict[int, int]:
        """The same, once every rank has completed some steps."""
        self.wait_for(r"rank \d+ is under way", self.ranks)
        return self.pids()

    def send(self, number: int, *ranks: int) -> None:
        """A signal to these ranks; the clock of the fault starts here."""
        pids = self.running()
        self.fault_at = time.time()
        for rank in ranks:
            os.kill(pids[rank], number)

    def kill(self, pid: int) -> None:
        """SIGKILL to a process of the job; the clock of the fault starts here."""
        self.fault_at = time.time()
        os.kill(pid, signal.SIGKILL)

    def signal_launcher(self, number: int) -> None:
        """The same for the launcher."""
        self.fault_at = time.time()
        self.process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """All processes that the launcher has started, directly or not."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, timeout: float = 30) -> int:
        """Waits for the end of the job and returns its status; a job that hangs falls short. The clock of
        the fault stops here, or where the last rank said that it was told: after that a rank ends at the pace
        of its interpreter, which with torch takes seconds.
        """
        try:
            status = self.process.wait(within(timeout))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job hangs:\n{self.output}") from None
        ended = time.time()
        self._reader.join(within(5))
        said = re.findall(r"fault at ([\d.]+)", self.output)
        begin = self.fault_at if self.fault_at is not None else float(said[0]) if said else ended
        told = re.findall(r"told at ([\d.]+)", self.output)
        self.seconds = max(map(float, told), default=ended) - begin
        return status

    def report(self) -> list[str]:
        """The launcher's report, from its headline on."""
        lines = [line for line in self.output.splitlines() if not line.startswith("[")]
        first = next((at for at, line in enumerate(lines) if "the job's status is" in line), len(lines))
        return lines[first:]

    def must_end(
        self,
        status: int,
        headline: str = "",
        *says: str,
        limit: float | None = None,
        timeout: float = 30,
    ) -> None:
        """The job ends with this status in time, and its report begins with this headline (patterns)."""
        assert self.end(timeout) == status, f"status {self.process.returncode}, not {status}:\n{self.output}"
        assert WRONG_RESULT not in self.output, self.output
        report = self.report()
        if headline:
            assert report and re.search(headline, report[0]), f"no headline {headline!r}:\n{self.output}"
        assert len(report) <= REPORT_LINES, f"a report of {len(report)} lines:\n{self.output}"
        for pattern in says:
            assert re.search(pattern, self.output, re.DOTALL), f"no {pattern!r}:\n{self.output}"
        if limit is not None:
            allowed = within(limit)
            assert self.seconds <= allowed, f"{self.seconds:.1f} s, not {limit:.1f}:\n{self.output}"

    def must_be_clean(self) -> None:
        """Nothing is left and no secret was shown."""
        deadline = time.monotonic() + within(LEFT_BEHIND_SECONDS)
        while left := self._left_behind():
            assert time.monotonic() < deadline, f"left behind: {left}\n{self.output}"
            time.sleep(0.05)
        assert self.canary not in self.output, "a secret of the user is in the output"

    def close(self) -> None:
        """Ends what still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.launcher.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._reader.join(5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _left_behind(self) -> list[str]:
        files = [str(path) for path in self.folder.rglob("*") if not path.is_dir()]
        segments = [
            name for name in _shared_memory() - self._shared_memory if "hvd" in name or "horovod" in name
        ]
        return self.launcher.census() + files + segments

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            with self._grown:
                self._text += data
                self._grown.notify_all()


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.exists() else set()
