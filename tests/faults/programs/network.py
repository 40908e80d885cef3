"""What ranks do in the cases of the layer "network": links are cut, closed and disturbed."""

import ctypes
import os
import socket
import struct
import time

import plain
from plain import Memory, allreduce, check, fault, right, start, steps, told

from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError

ROLES = {"watch": _core.LINK_WATCH, "control": _core.LINK_CONTROL, "data": _core.LINK_DATA}
LONG = 10**9


def _link(role: str, peer: int = 0) -> socket.socket:
    return socket.socket(fileno=os.dup(plain.links[ROLES[role], peer]))


def half_close(role: str) -> None:
    """Rank 1 closes its sending half of a link to rank 0."""
    if start() == 1:
        fault()
        _link(role).shutdown(socket.SHUT_WR)
    steps(LONG, pause=0.001)


def break_link(role: str, peer: int = 0) -> None:
    """Resets a TCP connection, and ends a Unix one."""
    link = _link(role, peer)
    if link.family == socket.AF_UNIX:
        link.shutdown(socket.SHUT_RDWR)
        return
    unspecified = ctypes.create_string_buffer(16)  # AF_UNSPEC
    assert ctypes.CDLL(None).connect(link.fileno(), unspecified, 16) == 0


def reset(role: str) -> None:
    """A link between ranks 0 and 1 is reset."""
    if start() == 1:
        fault()
        break_link(role)
    steps(LONG, pause=0.001)


def disturb(role: str, count: str) -> None:
    """Rank 1 sends bytes of its own into a link to rank 0, between two messages of the library."""
    if start() == 1:
        time.sleep(0.2)
        fault()
        _link(role).send(struct.pack("<I", 0x5A5A5A5A) * int(count))
    steps(LONG, pause=0.001)


def cut(role: str, count: str) -> None:
    """Rank 1 sends the beginning of a message, then ends the link."""
    if start() == 1:
        fault()
        link = _link(role)
        if int(count):
            link.send(bytes(int(count)))
        link.shutdown(socket.SHUT_RDWR)
    steps(LONG, pause=0.001)


def late(seconds: str) -> None:
    """Rank 1 does not come to init for so long."""
    if os.environ["HOROVOD_RANK"] == "1":
        time.sleep(float(seconds))
    else:
        fault()
    hvd.init()


def go_on(seconds: str, elements: str = "4096") -> None:
    """Steps until so long has passed on rank 0, which tells the others."""
    rank = start()
    end = time.monotonic() + float(seconds)
    try:
        while True:
            check(allreduce("large", Memory(int(elements))).is_all(hvd.size()))
            over = rank == 0 and time.monotonic() > end
            if not allreduce("over", Memory(1, float(over))).is_all(0.0):
                break
            time.sleep(0.01)
    except HorovodInternalError:
        told()
        raise
    right()
    hvd.shutdown()


if __name__ == "__main__":
    plain.main(globals())
