"""Runs the user's discovery script again and again, beside everything else that the launcher does."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Protocol

from horovod.bootstrap.text import escaped
from horovod.elastic.driver.discovery import DiscoveryError, Sightings, parse

from ..nodes.guardian import Guardian
from ..nodes.loop import Loop
from ..nodes.pipes import ReadPipe
from ..nodes.ssh_process import taken
from ..output import Tail

PERIOD_SECONDS = 1.0
"""From the end of a run to the next one."""
RUN_SECONDS = 60.0
"""A run that takes longer is ended. The command line of a cloud may need half a minute."""
_MOST_OUTPUT = 1 << 20
_MOST_WARNINGS = 16
_LINES, _WIDTH = 3, 200  # of its stderr, in a warning


class HostDiscovery(Protocol):
    """Who says which hosts an elastic job may use: a script of the user's, or the hosts themselves."""

    @property
    def hosts(self) -> Mapping[str, int]:
        """Those that are known by now, and how many ranks each may run."""

    def tend(self, now: float) -> Mapping[str, int] | None:
        """Looks. Returns ``hosts`` when they have changed since the last call."""

    def next_time(self) -> float:
        """When to call ``tend`` although nothing has happened."""


class Discovery:
    """One script. What a run says badly, or not at all, changes nothing: the hosts stay those of the last
    good one, and the user is told, once for each reason.
    """

    def __init__(
        self,
        loop: Loop,
        guardian: Guardian,
        script: str,
        slots: int | None,
        warn: Callable[[str], None],
    ) -> None:
        """``script`` is a line for the shell; ``slots``: of a host that it names without a number."""
        self._loop = loop
        self._guardian = guardian
        self._script = script
        self._slots = slots
        self._warn = warn
        self._sightings = Sightings()
        self._warned: set[str] = set()
        self._run: _Run | None = None
        self._next = 0.0
        self._deadline = float("inf")

    @property
    def hosts(self) -> Mapping[str, int]:
        """Those of the last good run, as far as they are believed."""
        return self._sightings.hosts

    def tend(self, now: float) -> Mapping[str, int] | None:
        """Starts, reads or ends a run. Returns the hosts when they have changed."""
        if self._run is None:
            if now >= self._next:
                self._start(now)
            return None
        code = self._loop.children.take_code(self._run.pid)
        if code is not None:
            return self._finish(self._run, code, now)
        if now >= self._deadline:
            self._complain(f"it has not ended within {RUN_SECONDS:g} s", self._run.errors)
            self._run.kill()
            self._deadline = float("inf")
        return None

    def next_time(self) -> float:
        """When to call ``tend`` although nothing has happened."""
        return self._next if self._run is None else self._deadline

    def close(self) -> None:
        """Ends a run that is under way."""
        if self._run is not None:
            self._run.kill()
            self._end_run(self._run)

    def _start(self, now: float) -> None:
        try:
            self._run = _Run(self._loop, self._script, {**os.environ, **self._guardian.mark})
        except OSError as error:
            self._complain(f"it cannot be started: {error.strerror}")
            self._next = now + PERIOD_SECONDS
            return
        self._guardian.watch(self._run.pid)  # it ends with this process, however that ends
        self._loop.children.expect(self._run.pid, is_tool=True)
        self._deadline = now + RUN_SECONDS

    def _finish(self, run: "_Run", code: int, now: float) -> Mapping[str, int] | None:
        is_killed = self._deadline == float("inf")
        run.drain()
        self._end_run(run)
        self._next, self._deadline = now + PERIOD_SECONDS, float("inf")
        if is_killed:
            return None
        if run.is_too_long:
            self._complain(f"it has written more than {_MOST_OUTPUT} bytes", run.errors)
            return None
        if code != 0:
            status = code if code > 0 else 128 - code  # of a signal, as most shells say it
            self._complain(f"it ended with exit status {status}", run.errors)
            return None
        try:
            found = parse(run.output.decode(errors="replace"), self._slots)
        except DiscoveryError as error:
            self._complain(str(error), run.errors)
            return None
        has_changed = self._sightings.see(found)
        if not self._sightings.hosts:
            self._complain("it lists no host with slots", run.errors)
        return self.hosts if has_changed else None

    def _end_run(self, run: "_Run") -> None:
        run.close()
        self._guardian.forget(run.pid)
        self._run = None

    def _complain(self, why: str, errors: Tail | None = None) -> None:
        said = "; ".join(errors.lines(_LINES, _WIDTH)) if errors is not None else ""
        kind = re.sub(r"\d+", "", f"{why} {said}") if said else why  # times and numbers are no other reason
        if kind in self._warned or len(self._warned) >= _MOST_WARNINGS:
            return
        self._warned.add(kind)
        then = "the hosts stay as they were" if self._sightings.hosts else "the job waits for hosts"
        text = f"{escaped(why)}{f' ({said})' if said else ''}"
        self._warn(f"--host-discovery-script {escaped(self._script)}: {text}; {then}")


class _Run:
    """The script at work, in a session of its own: ``output`` is what it has written so far, ``errors`` the
    last of its stderr.
    """

    def __init__(self, loop: Loop, script: str, environment: Mapping[str, str]) -> None:
        """Raises OSError where it cannot be started."""
        process = subprocess.Popen(
            script,
            shell=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        process.returncode = 0  # whoever reaps all children waits for it
        self.pid = process.pid
        self.output = bytearray()
        self.errors = Tail()
        self._stdout = ReadPipe(loop.selector, taken(process.stdout), self._take)
        self._stderr = ReadPipe(loop.selector, taken(process.stderr), self.errors.feed)

    @property
    def is_too_long(self) -> bool:
        """Whether it has written more than anybody wants to read."""
        return len(self.output) > _MOST_OUTPUT

    def drain(self) -> None:
        """Takes what it has written before its end."""
        self._stdout.drain()
        self._stderr.drain()

    def kill(self) -> None:
        """Ends it, with what it has started. Who runs as another user, as under sudo, ends by himself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Reads no more. What it has started may go on writing, to nobody."""
        self._stdout.close()
        self._stderr.close()

    def _take(self, data: bytes) -> None:
        self.output += data
        if self.is_too_long:
            self._stdout.close()
