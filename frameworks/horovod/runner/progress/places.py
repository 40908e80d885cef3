"""What --metrics may be: where Prometheus asks, and files."""

import re

from horovod.bootstrap.network.endpoints import LOOPBACK
from horovod.bootstrap.paths import absolute

from .. import meeting

Place = tuple[str, int] | str
"""Host and port, the path of a file, or TRAINJOB."""

TRAINJOB = "trainjob"

_PORT = re.compile(r"[0-9]{1,5}")
_ADDRESS = re.compile(r"[0-9.]+")  # which lacks its port


def parse(text: str) -> list[Place]:
    """A port of this host alone, HOST:PORT, a file, or "trainjob"; several with commas between. Raises
    ValueError for what is none.
    """
    return [_place(part.strip()) for part in text.split(",") if part.strip()]


def _place(text: str) -> Place:
    if _PORT.fullmatch(text):
        if int(text) > 65535:
            raise ValueError(f"{text}: a port is at most 65535")
        return LOOPBACK, int(text)
    if text == TRAINJOB:
        return TRAINJOB
    if "/" in text or (":" not in text and "." in text and not _ADDRESS.fullmatch(text)):
        return absolute(text)
    try:
        return meeting.split(text)
    except ValueError:
        raise ValueError(f"{text!r} is no port, address or file, such as 9100 or ./metrics.json") from None
