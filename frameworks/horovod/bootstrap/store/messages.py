"""The payloads of the store's frames: a tag, then fields, each with its length in front.

Requests: CLAIM token process (the first one: who acts as this rank); SET key value; WAIT milliseconds
key...; ADD key delta. Responses: OK field... (none where several values are too large together); ABSENT
key... (they did not come in time); ENDED key... (their ranks have ended); REFUSED reason; OVER (to a claim:
the store is that of an earlier program). Over the link to the launcher, without a response: VERDICT kind
culprit other link reason.
"""

import enum
import re
import struct
from collections.abc import Sequence

from ..errors import BootstrapError
from ..network.frames import MAX_PAYLOAD

ARRIVED, LINKED = "mesh", "linked"  # how far a rank has come, in its keys "<generation>/<step>/<rank>"
PROGRESS = "progress/"  # under which it sets how far its training is; see reports.py
MAX_FIELDS = 1 << 16
MAX_KEY = 256
TOKEN_BYTES = 16

_COUNT = struct.Struct("!BI")
_LENGTH = struct.Struct("!I")


class Tag(enum.IntEnum):
    """What a payload is."""

    SET = 1
    WAIT = 2
    ADD = 3
    VERDICT = 4
    CLAIM = 5
    OK = 16
    ABSENT = 17
    REFUSED = 18
    ENDED = 19
    OVER = 20


def owner(key: str) -> int | None:
    """The rank whose part it is to set ``key``: the last part of it, where that is a number."""
    match = re.search(r"/([0-9]{1,9})$", key)
    return int(match[1]) if match else None


def encode(tag: Tag, fields: Sequence[bytes | memoryview] = ()) -> bytes:
    """The payload of one request or response."""
    parts: list[bytes | memoryview] = [_COUNT.pack(tag, len(fields))]
    for field in fields:
        parts += (_LENGTH.pack(len(field)), field)
    return b"".join(parts)


def fits(fields: Sequence[bytes | memoryview]) -> bool:
    """Whether they can travel in one payload."""
    return _COUNT.size + sum(_LENGTH.size + len(field) for field in fields) <= MAX_PAYLOAD


def decode(payload: bytes) -> tuple[Tag, list[bytes]]:
    """Tag and fields. Raises BootstrapError unless the payload is exactly what ``encode`` makes."""
    try:
        code, count = _COUNT.unpack_from(payload)
        tag = Tag(code)
        if count > MAX_FIELDS:
            raise ValueError("too many fields")
        fields, offset = [], _COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(payload, offset)
            offset += _LENGTH.size
            if length > len(payload) - offset:
                raise ValueError("a field is cut short")
            fields.append(payload[offset : offset + length])
            offset += length
        if offset != len(payload):
            raise ValueError("bytes behind the last field")
    except (struct.error, ValueError) as error:
        raise BootstrapError(f"malformed message to or from the store: {error}") from None
    return tag, fields


def integer(text: bytes) -> int:
    """Of a field. Raises BootstrapError for anything else."""
    if len(text) > 20:
        raise BootstrapError("not a number")
    try:
        return int(text)
    except ValueError:
        raise BootstrapError("not a number") from None
