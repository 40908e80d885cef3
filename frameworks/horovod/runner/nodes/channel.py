"""Frames between the launcher and its agent on another host, over the pipes of one ssh.

A frame is the length of its payload, its tag, and the payload: JSON, or bytes of a rank's output. Each side
begins with a line of its own, so that the launcher can leave out what a login on the host prints first. Who
the other side is, ssh has made sure of.
"""

import enum
import json
import os
import selectors
import struct
from collections.abc import Callable
from typing import Any

GREETING = b"\nhorovod agent 1\n"
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

    HELLO = 20
    STARTED = 21
    REFUSED = 22  # the work, with the reason and a status
    OUTPUT = 23
    ENDED = 24
    STOPPED = 25
    FINISHED = 26
    PONG = 27


class ChannelError(Exception):
    """What comes from the other side is no channel of this version."""


class Channel:
    """One side. ``on_frame`` gets each frame; ``on_end`` is called once, when the other side is gone or
    speaks another language. Descriptors become the channel's.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        receives: int,
        sends: int,
        on_frame: Callable[[Tag, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._receives, self._sends = receives, sends
        self._on_frame, self._on_end = on_frame, on_end
        self._received = bytearray()
        self._unsent = bytearray(GREETING)
        self._is_greeted = False
        self._is_writing = False
        self._is_open = True
        for descriptor in (receives, sends):
            os.set_blocking(descriptor, False)
        selector.register(receives, selectors.EVENT_READ, self._read)
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
        if not self._is_open:  # closed in the same round
            return
        try:
            while self._unsent:
                del self._unsent[: os.write(self._sends, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more: the end of the other direction says so, too
            self._unsent.clear()
        if bool(self._unsent) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._selector.register(self._sends, selectors.EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(self._sends)

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
        try:
            if data and (self._is_greeted or self._skip_greeting()):
                self._take_frames()
        except ChannelError:
            data = b""
        if not data and self._is_open:
            self.close()
            self._on_end()

    def _skip_greeting(self) -> bool:
        begin = self._received.find(GREETING)
        if begin < 0:
            if len(self._received) > _MOST_NOISE:
                raise ChannelError
            return False
        del self._received[: begin + len(GREETING)]
        self._is_greeted = True
        return True

    def _take_frames(self) -> None:
        while self._is_open and len(self._received) >= _HEADER.size:
            length, number = _HEADER.unpack_from(self._received)
            if length > _MOST_PAYLOAD or number not in iter(Tag):
                raise ChannelError
            end = _HEADER.size + length
            if len(self._received) < end:
                return
            payload = bytes(self._received[_HEADER.size : end])
            del self._received[:end]
            self._on_frame(Tag(number), payload)


def content(payload: bytes) -> Any:
    """What ``send`` has got."""
    return json.loads(payload)


def output(payload: bytes) -> tuple[int, int, bytes]:
    """What ``send_output`` has got."""
    rank, stream = _OUTPUT.unpack_from(payload)
    return rank, stream, payload[_OUTPUT.size :]
