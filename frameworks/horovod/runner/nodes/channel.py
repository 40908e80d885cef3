"""Frames between the launcher and its agent on another host, over the pipes of one ssh.

A frame is the length of its payload, its tag, and the payload: JSON, or bytes of a rank's output. Each side
begins with a line that tells its version, so that the launcher can leave out what a login on the host prints
first, and only then says anything, so that no script of the login reads it. Who the other side is, ssh has
made sure of.
"""

import enum
import json
import os
import re
import selectors
import struct
from collections.abc import Callable
from typing import Any

from horovod.version import __version__

PROTOCOL = 2
GREETING = f"\nhorovod agent {PROTOCOL} {__version__}\n".encode()
_GREETING = re.compile(rb"\nhorovod agent (\d{1,9})(?: ([!-~]{1,64}))?\n")
# For scripts of a login that read lines: they would wait for ever, or take what is the agent's.
_EMPTY_LINES = b"\n" * 8
_HEADER = struct.Struct("!IB")
_OUTPUT = struct.Struct("!IB")
_MOST_PAYLOAD = 64 << 20
_MOST_NOISE = 1 << 20
_READ_BYTES = 1 << 18


class Tag(enum.IntEnum):
    """What a frame says. The first half goes to the agent, the second one to the launcher."""

    WORK = 1  # of this host, once
    SIGNAL = 2
    FIND_STOPPED = 3
    ROOM = 4  # for so many more bytes of output
    FINISH = 5
    ABANDON = 6
    PING = 7
    DONE = 8  # the agent may go
    SHOW_STACKS = 9
    ASK = 10  # who it is, and for a port of a range

    HELLO = 20
    STARTED = 21
    REFUSED = 22  # the work, with the reason and a status
    OUTPUT = 23
    ENDED = 24
    STOPPED = 25
    FINISHED = 26
    PONG = 27


class ChannelError(Exception):
    """What comes from the other side is no channel of this version; the text says what it is."""


class Channel:
    """One side. ``on_frame`` gets each frame, and may raise ChannelError; ``on_end`` is called once, when the
    other side is gone (with an empty text) or speaks another language (with a text that says so). The
    launcher waits for the greeting of the other side before it says anything: ``is_first`` is not its part.
    Descriptors become the channel's.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        receives: int,
        sends: int,
        on_frame: Callable[[Tag, bytes], None],
        on_end: Callable[[str], None],
        is_first: bool = True,
    ) -> None:
        self._selector = selector
        self._receives, self._sends = receives, sends
        self._on_frame, self._on_end = on_frame, on_end
        self._received = bytearray()
        self._unsent = bytearray(GREETING)
        self._is_first = is_first
        self._is_greeted = False
        self._is_writing = False
        self._is_open = True
        for descriptor in (receives, sends):
            os.set_blocking(descriptor, False)
        selector.register(receives, selectors.EVENT_READ, self._read)
        if not is_first:
            self._write(_EMPTY_LINES)
        self._flush()

    @property
    def is_flushed(self) -> bool:
        """Whether the kernel has taken everything, or never will."""
        return not self._unsent or not self._is_open

    def send(self, tag: Tag, content: object = None) -> None:
        """Queues a frame whose payload is ``content`` as JSON; without effect once the channel has ended."""
        self._queue(tag, json.dumps(content).encode())

    def send_output(self, rank: int, stream: int, data: bytes) -> None:
        """Queues a frame of a rank's output."""
        self._queue(Tag.OUTPUT, _OUTPUT.pack(rank, stream) + data)

    def close(self) -> None:
        """Closes both descriptors. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._receives)
            if self._is_writing:
                self._selector.unregister(self._sends)
            os.close(self._receives)
            os.close(self._sends)

    def _queue(self, tag: Tag, payload: bytes) -> None:
        if self._is_open:
            self._unsent += _HEADER.pack(len(payload), tag) + payload
            self._flush()

    def _flush(self) -> None:
        # Closed in the same round; or not to be said yet.
        if not self._is_open or not (self._is_first or self._is_greeted):
            return
        while self._unsent and (count := self._write(self._unsent)):
            del self._unsent[:count]
        if bool(self._unsent) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._selector.register(self._sends, selectors.EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(self._sends)

    def _write(self, data: bytes | bytearray) -> int:
        """How many bytes the kernel has taken."""
        try:
            return os.write(self._sends, data)
        except BlockingIOError:
            return 0
        except OSError:  # nobody reads any more: the end of the other direction says so, too
            return len(data)

    def _read(self) -> None:
        if not self._is_open:  # closed in the same round
            return
        try:
            data = os.read(self._receives, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        reason = ""
        try:
            if data and (self._is_greeted or self._skip_greeting()):
                self._take_frames()
        except ChannelError as error:
            data, reason = b"", str(error)
        if not data and self._is_open:
            self.close()
            self._on_end(reason)

    def _skip_greeting(self) -> bool:
        found = _GREETING.search(self._received)
        if found is None:
            if len(self._received) > _MOST_NOISE:
                raise ChannelError(
                    f"it prints more than {_MOST_NOISE >> 20} MiB where an agent should start: what do the "
                    "scripts of a login (~/.bashrc) print there?"
                )
            return False
        check_versions(int(found[1]), (found[2] or b"").decode())
        del self._received[: found.end()]
        self._is_greeted = True
        self._flush()
        return True

    def _take_frames(self) -> None:
        while self._is_open and len(self._received) >= _HEADER.size:
            length, number = _HEADER.unpack_from(self._received)
            if length > _MOST_PAYLOAD or number not in iter(Tag):
                raise ChannelError("what its agent sent is no message: something else writes to its output")
            end = _HEADER.size + length
            if len(self._received) < end:
                return
            payload = bytes(self._received[_HEADER.size : end])
            del self._received[:end]
            self._on_frame(Tag(number), payload)


def check_versions(protocol: int, version: str) -> None:
    """Raises ChannelError unless the other side, which tells these, is of the version of this one."""
    if (protocol, version) == (PROTOCOL, __version__):
        return
    theirs, ours = version or "of another version", __version__
    if theirs == ours:
        theirs, ours = f"{theirs} (protocol {protocol})", f"{ours} (protocol {PROTOCOL})"
    raise ChannelError(
        f"it has horovod {theirs} and this host has {ours}: install the same version on both hosts"
    )


def content(payload: bytes) -> Any:
    """What ``send`` has got."""
    return json.loads(payload)


def output(payload: bytes) -> tuple[int, int, bytes]:
    """What ``send_output`` has got."""
    rank, stream = _OUTPUT.unpack_from(payload)
    return rank, stream, payload[_OUTPUT.size :]
