"""The addresses of names. That of a pod gets one some seconds after the pod has begun, and no earlier within
the pod itself.
"""

import socket
import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.5
_known: dict[str, list[str]] = {}  # of several servers of names, some hear of a new one later than others


def addresses(
    host: str, seconds: float = 0.0, say: Callable[[OSError], object] = lambda error: None
) -> list[str]:
    """Those of a name, each once.

    Args:
        host: the name, or an address.
        seconds: how long to wait until it has some.
        say: told, once, why this takes a while.

    Raises:
        OSError: it has none so far.
        UnicodeError: this can be no name.
    """
    end = time.monotonic() + seconds
    is_told = False
    while True:
        try:
            return list(_found(host))
        except OSError as error:
            if time.monotonic() >= end:
                raise
            if not is_told:
                say(error)
            is_told = True
        time.sleep(_PAUSE_SECONDS)


def _found(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        if host in _known:
            return _known[host]
        raise
    _known[host] = list(dict.fromkeys(str(target[0]) for _, _, _, _, target in found))
    return _known[host]
