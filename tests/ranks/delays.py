"""A switch that hands each frame on only after a while: what a network that is far away costs.

python delays.py SECONDS NAMESPACES..., each the path of a network namespace's file, in which it makes the
interface ``eth0``. It says "ready" on its standard output, and ends with its standard input.

The interfaces are taps: what a namespace sends, this program reads, and the other way round. Such a delay
needs nothing of the kernel's traffic control.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import sys
import time
from collections.abc import Sequence

TUNSETIFF, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
MOST_BYTES = 1 << 16
BROADCAST = b"\xff" * 6


def interface(namespace: str, name: str) -> int:
    """A descriptor of the other end of a new interface; this process is in that namespace afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    entered = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(entered, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(entered)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | NO_HEADER))
    return tap


class Switch:
    """Learns which addresses are behind each interface, as a switch does."""

    def __init__(self, seconds: float, taps: Sequence[int]) -> None:
        self._seconds, self._taps = seconds, taps
        self._behind: dict[bytes, int] = {}
        self._under_way: list[tuple[float, int, int, bytes]] = []  # when, number, from where, frame
        self._count = 0

    def run(self, until: int) -> None:
        """Until the descriptor ``until`` has something to read."""
        polled = select.epoll()
        for descriptor in (*self._taps, until):
            polled.register(descriptor, select.EPOLLIN)
        while True:
            wait = self._under_way[0][0] - time.monotonic() if self._under_way else -1
            for descriptor, _ in polled.poll(max(wait, 0) if self._under_way else -1):
                if descriptor == until:
                    return
                self._take(descriptor)
            self._deliver()

    def _take(self, tap: int) -> None:
        due = time.monotonic() + self._seconds
        while True:
            try:
                frame = os.read(tap, MOST_BYTES)
            except BlockingIOError:
                return
            self._count += 1
            heapq.heappush(self._under_way, (due, self._count, tap, frame))

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= time.monotonic():
            _, _, source, frame = heapq.heappop(self._under_way)
            self._behind[frame[6:12]] = source
            known = self._behind.get(frame[:6])
            for tap in self._taps if known is None else (known,):
                if tap != source:
                    self._write(tap, frame)

    def _write(self, tap: int, frame: bytes) -> None:
        try:
            os.write(tap, frame)
        except OSError:  # the interface is down, or full: as on a wire, the frame is lost
            pass


def main() -> None:
    seconds, namespaces = float(sys.argv[1]), sys.argv[2:]
    switch = Switch(seconds, [interface(namespace, "eth0") for namespace in namespaces])
    print("ready", flush=True)
    switch.run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
