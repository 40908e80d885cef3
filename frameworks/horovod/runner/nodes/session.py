"""A stream of bytes in each direction that goes on over one connection after another. Pure.

Each side keeps what it has written until the other one has said that it came. On a new connection each tells
how much it has, and the other one begins behind that: nothing is lost, and nothing comes twice.
"""

import struct

_DATA, _ARRIVED = b"d", b"a"
SIGN_OF_LIFE = b"l"  # asks for one, too
FAREWELL = b"f"  # this side ends, and dials no more
_COUNT = struct.Struct("!Q")
_MOST_DATA = 1 << 16  # a connection is given up that brings no whole message for some seconds


class SessionError(Exception):
    """The two sides have not been talking with each other."""


class Session:
    """One side. Messages are what a connection carries whole, in order, or loses with all that follow."""

    def __init__(self) -> None:
        self.received = 0
        self._kept = bytearray()  # of what was written; the other side may not have it
        self._begin = 0  # the place of its first byte in the stream

    @property
    def kept(self) -> int:
        """How many bytes may not have arrived."""
        return len(self._kept)

    def write(self, data: bytes) -> list[bytes]:
        """The messages that carry ``data``, for the connection, if there is one now."""
        self._kept += data
        return _messages(data)

    def resume(self, arrived: int) -> list[bytes]:
        """The messages for a new connection to the side that has got so many bytes. Raises SessionError."""
        self._forget(arrived)
        return _messages(bytes(self._kept))

    def take(self, message: bytes) -> tuple[bytes, list[bytes]]:
        """The data that a message carries, and the messages in answer. Raises SessionError."""
        kind, content = message[:1], message[1:]
        if kind == _DATA:
            self.received += len(content)
            return content, [_ARRIVED + _COUNT.pack(self.received)]
        if message == SIGN_OF_LIFE:
            return b"", [_ARRIVED + _COUNT.pack(self.received)]
        if kind != _ARRIVED or len(content) != _COUNT.size:
            raise SessionError("a message of no known kind has come")
        self._forget(_COUNT.unpack(content)[0])
        return b"", []

    def _forget(self, arrived: int) -> None:
        if not self._begin <= arrived <= self._begin + len(self._kept):
            raise SessionError(f"{arrived} bytes cannot have come: {self._begin} and {len(self._kept)} more")
        del self._kept[: arrived - self._begin]
        self._begin = arrived


def _messages(data: bytes) -> list[bytes]:
    return [_DATA + data[begin : begin + _MOST_DATA] for begin in range(0, len(data), _MOST_DATA)]
