"""Frames between the launcher and its agent on another host, over the pipes of one ssh.

A frame is the length of its payload, its tag, and the payload: JSON, or bytes of a stream. Each side
begins with a line that tells its version, so that the launcher can leave out what a login on the host prints
first, and only then says anything, so that no script of the login reads it. Who the other side is, ssh has
made sure of.
"""

import enum
import json
import re
import struct
from collections.abc import Callable
from typing import Any

from horovod.version import __version__

PROTOCOL = 7
GREETING = f"\nhorovod agent {PROTOCOL} {__version__}\n".encode()
_GREETING = re.compile(rb"\nhorovod agent (\d{1,9})(?: ([!-~]{1,64}))?\n")
# For scripts of a login that read lines: they would wait for ever, or take what is the agent's.
_EMPTY_LINES = b"\n" * 8
_HEADER = struct.Struct("!IB")
_STREAM = struct.Struct("!IB")
_MOST_PAYLOAD = 64 << 20
_MOST_NOISE = 1 << 20


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
    DIAL = 11  # a further host: run its ssh for the launcher; see relay
    TO_SSH = 12  # bytes for such an ssh
    END_SSH = 13
    START_WORKER = 14  # one process more, of the work
    SIGNAL_ONE = 15

    HELLO = 20
    STARTED = 21
    REFUSED = 22  # the work, with the reason and a status
    OUTPUT = 23
    ENDED = 24
    STOPPED = 25
    FINISHED = 26
    PONG = 27
    FROM_SSH = 28  # bytes of such an ssh
    SSH_ENDED = 29
    NOTICED = 30  # that the host is about to go, or is not any more


class ChannelError(Exception):
    """What comes from the other side is no channel of this version; the text says what it is."""


class Channel:
    """One side. ``write`` takes the bytes for the other one, and ``feed`` gets what comes from there.

    ``on_frame`` gets each frame, and may raise ChannelError; ``on_end`` is called once, when the other side
    is gone (with an empty text) or speaks another language (with a text that says so). The launcher waits
    for the greeting of the other side before it says anything: ``is_first`` is not its part.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        on_frame: Callable[[Tag, bytes], None],
        on_end: Callable[[str], None],
        is_first: bool = True,
    ) -> None:
        self._write = write
        self._on_frame, self._on_end = on_frame, on_end
        self._received = bytearray()
        self._held = bytearray(b"" if is_first else GREETING)  # until the other side has greeted
        self._may_speak = is_first
        self._is_greeted = False
        self._is_open = True
        write(GREETING if is_first else _EMPTY_LINES)

    def send(self, tag: Tag, content: object = None) -> None:
        """Sends a frame whose payload is ``content`` as JSON; without effect once the channel has ended."""
        self._send(tag, json.dumps(content).encode())

    def send_bytes(self, tag: Tag, number: int, stream: int, data: bytes) -> None:
        """Sends a frame of a stream, of those that ``number`` has: of a rank's output, for example."""
        self._send(tag, _STREAM.pack(number, stream) + data)

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the other side; no bytes: its end."""
        if not self._is_open:
            return
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

    def close(self) -> None:
        """Says and hears nothing any more. Idempotent."""
        self._is_open = False

    def _send(self, tag: Tag, payload: bytes) -> None:
        if not self._is_open:
            return
        frame = _HEADER.pack(len(payload), tag) + payload
        if self._may_speak:
            self._write(frame)
        else:
            self._held += frame

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
        self._is_greeted = self._may_speak = True
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._write(held)
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


def stream_bytes(payload: bytes) -> tuple[int, int, bytes]:
    """What ``send_bytes`` has got. Raises struct.error for what is none."""
    number, stream = _STREAM.unpack_from(payload)
    return number, stream, payload[_STREAM.size :]
