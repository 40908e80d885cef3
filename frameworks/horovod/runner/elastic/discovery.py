"""Runs the user's discovery script again and again, beside everything else that the launcher does."""

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from horovod.bootstrap.text import escaped
from horovod.elastic.driver.discovery import DiscoveryError, Sightings, parse

from ..nodes.loop import Loop

PERIOD_SECONDS = 1.0
"""From the end of a run to the next one."""
RUN_SECONDS = 10.0
"""A run that takes longer is ended."""
_MOST_OUTPUT = 1 << 20


class Discovery:
    """One script. What a run says badly, or not at all, changes nothing: the hosts stay those of the last
    good one, and the user is told, once for each reason.
    """

    def __init__(
        self, loop: Loop, command: Sequence[str], slots: int | None, warn: Callable[[str], None]
    ) -> None:
        """``slots``: of a host that the script names without a number."""
        self._loop = loop
        self._command = list(command)
        self._slots = slots
        self._warn = warn
        self._sightings = Sightings()
        self._warned: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        self._next = 0.0
        self._deadline = float("inf")

    def tend(self, now: float) -> Mapping[str, int] | None:
        """Starts, reads or ends a run. Returns the hosts when they have changed."""
        if self._process is None:
            if now >= self._next:
                self._start(now)
            return None
        code = self._loop.children.take_code(self._process.pid)
        if code is not None:
            return self._finish(code, now)
        if now >= self._deadline:
            self._complain(f"it has not ended within {RUN_SECONDS:g} s")
            _kill(self._process.pid)
            self._deadline = float("inf")
        return None

    def next_time(self) -> float:
        """When to call ``tend`` although nothing has happened."""
        return self._next if self._process is None else self._deadline

    def close(self) -> None:
        """Ends a run that is under way."""
        if self._process is not None:
            _kill(self._process.pid)
            self._close_output()

    def _start(self, now: float) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._complain(f"it cannot be started: {error.strerror}")
            self._next = now + PERIOD_SECONDS
            return
        assert self._process.stdout is not None
        self._process.returncode = 0  # whoever reaps all children waits for it
        self._loop.children.expect(self._process.pid, is_tool=True)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._output.clear()
        self._deadline = now + RUN_SECONDS
        self._loop.selector.register(self._process.stdout, selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        data = self._process.stdout.read(1 << 16)
        if data == b"" or len(self._output) > _MOST_OUTPUT:
            self._loop.selector.unregister(self._process.stdout)
        self._output += data or b""

    def _finish(self, code: int, now: float) -> Mapping[str, int] | None:
        assert self._process is not None and self._process.stdout is not None
        # What the script has started may go on writing.
        while len(self._output) <= _MOST_OUTPUT and (data := self._process.stdout.read(1 << 16)):
            self._output += data
        self._close_output()
        self._next, self._deadline = now + PERIOD_SECONDS, float("inf")
        if code != 0:
            self._complain(f"it ended with exit status {code}" if code > 0 else f"signal {-code} ended it")
            return None
        try:
            found = parse(self._output.decode(errors="replace"), self._slots)
        except DiscoveryError as error:
            self._complain(str(error))
            return None
        return dict(self._sightings.hosts) if self._sightings.see(found) else None

    def _close_output(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        if self._process.stdout in self._loop.selector.get_map():
            self._loop.selector.unregister(self._process.stdout)
        self._process.stdout.close()
        self._process = None

    def _complain(self, why: str) -> None:
        if why not in self._warned and len(self._warned) < 16:
            self._warned.add(why)
            script = escaped(self._command[0])
            then = "the hosts stay as they were" if self._sightings.hosts else "the job waits for hosts"
            self._warn(f"--host-discovery-script {script}: {escaped(why)}; {then}")


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
