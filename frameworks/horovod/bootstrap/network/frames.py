"""Sealed frames: length, HMAC-SHA256 over a counter and the payload, payload. Bytes in, payloads out."""

import hmac
import struct

from ..errors import AuthenticationError

MAX_PAYLOAD = 1 << 20

_HEADER = struct.Struct("!I32s")
_COUNTER = struct.Struct("!Q")


class Sealer:
    """Makes the frames of one direction. The counter makes every frame unique and fixes their order."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._counter = 0

    @property
    def count(self) -> int:
        """How many frames were made."""
        return self._counter

    def seal(self, payload: bytes) -> bytes:
        """The frame that carries ``payload``. Raises ValueError above MAX_PAYLOAD."""
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"a frame carries at most {MAX_PAYLOAD} bytes, got {len(payload)}")
        mac = _mac(self._key, self._counter, payload)
        self._counter += 1
        return _HEADER.pack(len(payload), mac) + payload


class Opener:
    """Takes the bytes of one direction apart again; holds at most one frame."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._counter = 0
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads completed by ``data``. AuthenticationError: a frame that the peer did not seal."""
        self._received += data
        payloads = []
        while len(self._received) >= _HEADER.size:
            length, mac = _HEADER.unpack_from(self._received)
            if length > MAX_PAYLOAD:
                raise AuthenticationError(f"a frame announces {length} bytes, the limit is {MAX_PAYLOAD}")
            end = _HEADER.size + length
            if len(self._received) < end:
                break
            payload = bytes(self._received[_HEADER.size : end])
            if not hmac.compare_digest(mac, _mac(self._key, self._counter, payload)):
                raise AuthenticationError("a frame was changed, repeated or reordered on its way")
            self._counter += 1
            del self._received[:end]
            payloads.append(payload)
        return payloads


def _mac(key: bytes, counter: int, payload: bytes) -> bytes:
    return hmac.digest(key, _COUNTER.pack(counter) + payload, "sha256")
