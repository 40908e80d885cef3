"""What the launcher of horovod.run tells its caller, over the socket between them."""

import enum
import struct
from collections.abc import Callable

_HEADER = struct.Struct("!BI")


class Kind(enum.IntEnum):
    """What a message is."""

    NOTE = 0  # that a rank sends while it works; see notes.py
    OUTCOME = 1  # how the job ended


def packed(kind: Kind, data: bytes) -> bytes:
    """A message."""
    return _HEADER.pack(kind, len(data)) + data


class Messages:
    """Takes the bytes of the socket. ``outcome`` has come when the launcher ends, if it could say any."""

    def __init__(self, on_note: Callable[[bytes], object]) -> None:
        self.outcome = b""
        self._on_note = on_note
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """The next bytes; none at the end."""
        self._rest += data
        while len(self._rest) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._rest)
            end = _HEADER.size + size
            if len(self._rest) < end:
                return
            message = bytes(self._rest[_HEADER.size : end])
            del self._rest[:end]
            if kind == Kind.NOTE:
                self._on_note(message)
            else:
                self.outcome = message
