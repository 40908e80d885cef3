"""Steps of small allreduces in plain Python; after some of them rank 1 does what the argument says."""

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from horovod import _core
from horovod.common import basics as hvd

CULPRIT, VICTIM = 1, 0
STEPS_BEFORE = 20
LINGERS = float(os.environ.get("TEST_LINGER_SECONDS", "0"))  # who has failed
ROLES = {"watch": _core.LINK_WATCH, "control": _core.LINK_CONTROL, "data": _core.LINK_DATA}
delay = 0.0
links: dict[tuple[int, int], int] = {}
start_core = _core.init


def init_and_note_links(identity, given, *more) -> None:
    links.update({(role, peer): fd for fd, peer, role, _, _ in given})
    start_core(identity, given, *more)


def reset(role: str) -> None:
    """Breaks a link between living ranks: a TCP connection by a reset, a Unix one by its end."""
    fd = links[ROLES[role], VICTIM]
    with socket.socket(fileno=os.dup(fd)) as copy:
        if copy.family == socket.AF_UNIX:
            copy.shutdown(socket.SHUT_RDWR)
        else:
            unspecified = ctypes.create_string_buffer(16)  # AF_UNSPEC
            assert ctypes.CDLL(None).connect(fd, unspecified, 16) == 0


def garble(role: str) -> None:
    """Writes what no sound rank sends to all that this rank has such a link to."""
    for (link_role, _), fd in links.items():
        if link_role == ROLES[role]:
            with socket.socket(fileno=os.dup(fd)) as copy:
                copy.send(os.urandom(4096))


def native_loop() -> None:
    ctypes.PyDLL(None).sleep(60)  # holds the interpreter lock


def python_loop() -> None:
    while True:
        time.sleep(0.01)


def raise_error() -> None:
    raise ValueError("the reason")


def shut_down() -> None:
    hvd.shutdown()
    time.sleep(60)


def slow_down() -> None:
    global delay
    delay = 0.04


def nothing() -> None:
    pass


def crash() -> None:
    ctypes.string_at(0)


MISDEEDS: dict[str, Callable[[], None]] = {
    "leave-at-once": lambda: os._exit(0),
    "leave": lambda: sys.exit(0),
    "leave-with-7": lambda: os._exit(7),
    "freeze": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crash": crash,
    "abort": os.abort,
    "raise": raise_error,
    "shutdown": shut_down,
    "python-loop": python_loop,
    "native-loop": native_loop,
    "nothing": nothing,
    "slow": slow_down,
    **{f"reset-{role}": lambda role=role: reset(role) for role in ROLES},
    **{f"garble-{role}": lambda role=role: garble(role) for role in ROLES},
}


def main() -> None:
    _core.init = init_and_note_links
    hvd.init()
    memory = (ctypes.c_float * 4096)()
    address, size = ctypes.addressof(memory), ctypes.sizeof(memory)
    tensor = (address, address, _core.DTYPES["float32"], (4096,), size, size)
    for step in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100000):
        if step == STEPS_BEFORE and hvd.rank() == CULPRIT:
            MISDEEDS[sys.argv[1]]()
        time.sleep(delay)
        try:
            _core.run(_core.ALLREDUCE, "gradient", [tensor])
        except RuntimeError:
            time.sleep(LINGERS)
            raise


main()
