"""An ssh that this process runs: for itself as the launcher, or as a relay for the launcher."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from .guardian import Guardian
from .loop import Loop
from .pipes import ReadPipe, WritePipe


class SshProcess:
    """See ``connection.Ssh``. Its session is watched by ``guardian``, so that it does not outlive this
    process.
    """

    def __init__(self, command: Sequence[str], loop: Loop, guardian: Guardian) -> None:
        """Raises OSError where it cannot be started."""
        self.on_output: Callable[[bytes], object] = _forget
        self.on_errors: Callable[[bytes], object] = _forget
        self._children = loop.children
        self._status: int | None = None
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        process.returncode = 0  # the loop's children are reaped together
        self._pid = process.pid
        guardian.watch(self._pid)
        loop.children.expect(self._pid, is_tool=True)
        loop.children.look_after(self._pid, lambda: guardian.forget(process.pid))
        self._stdin = WritePipe(loop.selector, taken(process.stdin))
        self._stdout = ReadPipe(loop.selector, taken(process.stdout), self._take_output)
        self._stderr = ReadPipe(loop.selector, taken(process.stderr), lambda data: self.on_errors(data))

    @property
    def has_said_all(self) -> bool:
        """Whether its stdout has ended."""
        return not self._stdout.is_open

    def write(self, data: bytes) -> None:
        """For its stdin; does not wait."""
        self._stdin.write(data)

    def hold(self, is_held: bool) -> None:
        """Reads nothing of it while it is held."""
        self._stdout.hold(is_held)
        self._stderr.hold(is_held)

    def status(self) -> int | None:
        """How it has ended, and then all of its stderr has come; None: it runs."""
        if self._status is None:
            self._status = self._children.take_code(self._pid)
            if self._status is not None:
                self._stderr.drain()
        return self._status

    def kill(self) -> None:
        """Ends it at once; what it still has to say is lost."""
        self._signal(signal.SIGKILL)
        self._close_pipes()

    def close(self) -> None:
        """Gives everything back. Idempotent. A stopped one ends, too."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        self._close_pipes()

    def _signal(self, number: int) -> None:
        """Of another user, as under sudo, it takes no signals from here, and ends as its pipes do."""
        if self.status() is None:  # not reaped: the number is still its own
            with contextlib.suppress(PermissionError):
                os.kill(self._pid, number)

    def _close_pipes(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def _take_output(self, data: bytes) -> None:
        if not data:  # the agent is gone
            self._stdin.close()
        self.on_output(data)


def _forget(data: bytes) -> None:
    """Nobody has asked for it yet."""


def taken(file: Any) -> int:
    """The descriptor of a pipe of Popen's, which is no longer Popen's."""
    descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, False)
    file.close()
    return descriptor
