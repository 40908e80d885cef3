"""One ssh to another host: what it writes to its stderr, and the channel to the agent there."""

import time
from collections.abc import Callable
from typing import Protocol

from . import ssh
from .channel import Channel, Tag

_MOST_ERRORS = 1 << 16


class Ssh(Protocol):
    """A running ssh, of this host (``ssh_process``) or of a relay (``relay``)."""

    on_output: Callable[[bytes], object]  # gets what comes on its stdout; no bytes: the end
    on_errors: Callable[[bytes], object]  # the same for its stderr

    def write(self, data: bytes) -> None:
        """For its stdin; does not wait."""

    def status(self) -> int | None:
        """How it has ended, and then all of its stderr has come; None: it runs."""

    def kill(self) -> None:
        """Ends it at once; what it still has to say is lost."""

    def close(self) -> None:
        """Gives everything back, and ends what still runs. Idempotent."""


class Connection:
    """``ended`` is when its channel has ended, by time.monotonic, and ``reason`` why, where that is not for
    ssh to tell.
    """

    def __init__(self, process: Ssh, on_frame: Callable[[Tag, bytes], None]) -> None:
        self.began = time.monotonic()
        self.ended: float | None = None
        self.reason = ""
        self._process = process
        self._on_frame = on_frame
        self._has_heard = False
        self._errors = bytearray()
        self._channel = Channel(process.write, self._take, self._on_end, is_first=False)
        process.on_output = self._channel.feed
        process.on_errors = self._take_errors

    @property
    def errors(self) -> str:
        """What has come on stderr, the last of it."""
        return self._errors.decode(errors="replace")

    @property
    def has_logged_in(self) -> bool:
        """Whether the host has let it in."""
        return self._has_heard or ssh.has_logged_in(self.errors)

    def send(self, tag: Tag, said: object = None) -> None:
        """Queues a frame, which goes out when the agent is there; without effect after the end."""
        self._channel.send(tag, said)

    def send_bytes(self, tag: Tag, number: int, data: bytes) -> None:
        """The same for bytes of a stream."""
        self._channel.send_bytes(tag, number, 0, data)

    def status(self) -> int | None:
        """That of ssh; None: it runs."""
        return self._process.status()

    def kill(self) -> None:
        """Ends it at once; what it still has to say is lost."""
        self.ended = self.ended or time.monotonic()
        self._channel.close()
        self._process.kill()

    def close(self) -> None:
        """Gives everything back. Idempotent."""
        self._channel.close()
        self._process.close()

    def _take(self, tag: Tag, payload: bytes) -> None:
        self._has_heard = True
        self._on_frame(tag, payload)

    def _on_end(self, reason: str) -> None:
        self.ended, self.reason = time.monotonic(), reason

    def _take_errors(self, data: bytes) -> None:
        self._errors += data
        del self._errors[:-_MOST_ERRORS]
