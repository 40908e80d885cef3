"""One ssh to another host: its process, what it writes to its stderr, and the channel to the agent there."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import ssh
from .channel import Channel, Tag
from .guardian import Guardian
from .loop import Loop

_READ_BYTES = 1 << 16
_MOST_ERRORS = 1 << 16


class Connection:
    """A running ssh. ``ended`` is when its channel has ended, by time.monotonic, and ``reason`` why, where
    that is not for ssh to tell.
    """

    def __init__(
        self,
        command: Sequence[str],
        loop: Loop,
        guardian: Guardian,
        on_frame: Callable[[Tag, bytes], None],
    ) -> None:
        self.began = time.monotonic()
        self.ended: float | None = None
        self.reason = ""
        self._loop = loop
        self._guardian = guardian
        self._on_frame = on_frame
        self._has_heard = False
        self._errors = bytearray()
        self._status: int | None = None
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._process.returncode = 0  # the loop's children are reaped together
        guardian.watch(self._process.pid)
        loop.children.expect(self._process.pid, is_tool=True)
        self._stderr = _taken(self._process.stderr)
        os.set_blocking(self._stderr, False)
        loop.selector.register(self._stderr, selectors.EVENT_READ, self._read_errors)
        receives, sends = _taken(self._process.stdout), _taken(self._process.stdin)
        self._channel = Channel(loop.selector, receives, sends, self._take, self._on_end, is_first=False)

    @property
    def errors(self) -> str:
        """What has come on stderr, the last of it."""
        self._read_errors()
        return self._errors.decode(errors="replace")

    @property
    def has_logged_in(self) -> bool:
        """Whether the host has let it in."""
        return self._has_heard or ssh.has_logged_in(self.errors)

    def send(self, tag: Tag, said: object = None) -> None:
        """Queues a frame, which goes out when the agent is there; without effect after the end."""
        self._channel.send(tag, said)

    def status(self) -> int | None:
        """That of ssh; None: it runs."""
        if self._status is None:
            self._status = self._loop.children.take_code(self._process.pid)
        return self._status

    def kill(self) -> None:
        """Ends it at once; what it still has to say is lost."""
        self.ended = self.ended or time.monotonic()
        self._channel.close()
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Gives everything back. Idempotent."""
        self._channel.close()
        self._close_errors()
        self._signal(signal.SIGTERM)
        self._guardian.forget(self._process.pid)

    def _signal(self, number: int) -> None:
        if self.status() is None:  # not reaped: the number is still its own
            os.kill(self._process.pid, number)

    def _take(self, tag: Tag, payload: bytes) -> None:
        self._has_heard = True
        self._on_frame(tag, payload)

    def _on_end(self, reason: str) -> None:
        self.ended, self.reason = time.monotonic(), reason

    def _read_errors(self) -> None:
        if self._stderr < 0:
            return
        try:
            data = os.read(self._stderr, _READ_BYTES)
        except BlockingIOError:
            return
        self._errors += data
        del self._errors[:-_MOST_ERRORS]
        if not data:
            self._close_errors()

    def _close_errors(self) -> None:
        if self._stderr >= 0:
            self._loop.selector.unregister(self._stderr)
            os.close(self._stderr)
            self._stderr = -1


def _taken(file: Any) -> int:
    """The descriptor of a pipe of Popen's, which is no longer Popen's."""
    descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, False)
    file.close()
    return descriptor
