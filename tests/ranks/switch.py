"""A switch between network namespaces that treats what it carries as networks do: late, not at all, or wrong.

python switch.py NAMESPACES..., each the path of a network namespace's file, in which it makes the interface
``eth0``. It says "ready" on its standard output. Then each line of its standard input is a rule, which it
answers with "ok": ``FROM TO key=value...``, where FROM and TO are numbers of namespaces or "*", and a key is
one of ``Path``. It ends with its standard input.

The interfaces are taps: what a namespace sends, this program reads, and the other way round. That needs
nothing of the kernel's traffic control, and nothing leaves the namespaces.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

TUNSETIFF, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
MOST_BYTES = 1 << 16
ETHERNET, TCP = 14, 6
IPV4 = b"\x08\x00"
SYN, ACK = 0x02, 0x10


@dataclass
class Path:
    """What befalls frames from one namespace to another. Chances are from 0 to 1, times in seconds."""

    delay: float = 0.0
    jitter: float = 0.0  # at most so much more
    loss: float = 0.0
    twice: float = 0.0  # the chance of a second copy
    overtake: float = 0.0  # that the delay is left out
    corrupt: float = 0.0  # that a bit of a TCP payload is wrong, and the checksum right
    cut: float = 0.0  # 1: nothing arrives
    mtu: float = 0.0  # larger packets are lost; 0: none
    idle: float = 0.0  # a TCP connection that carries nothing for longer is forgotten; 0: none
    port: float = 0.0  # TCP from or to this port is lost; 0: none
    rate: float = 0.0  # bits in a second; 0: any
    queue: float = 64e3  # bytes that wait for the rate, beyond which frames are lost
    free_at: float = 0.0  # when what waits has gone

    def loses(self, frame: bytes) -> bool:
        """Whether this one does not arrive, whatever else is under way."""
        is_large = self.mtu and len(frame) - ETHERNET > self.mtu
        return bool(
            self.cut or is_large or random.random() < self.loss or (self.port and self.port in ports(frame))
        )

    def due(self, frame: bytes, now: float) -> float | None:
        """When it arrives; None: there is no room for it."""
        if self.rate:
            waiting = max(self.free_at - now, 0.0) * self.rate / 8
            if waiting + len(frame) > self.queue:
                return None
            self.free_at = max(self.free_at, now) + len(frame) * 8 / self.rate
            now = self.free_at
        if random.random() < self.overtake:
            return now
        return now + self.delay + random.random() * self.jitter


def connection(frame: bytes) -> bytes:
    """Which one a TCP packet over IPv4 is of, in either direction; of any other empty."""
    if not ports(frame):
        return b""
    begin = ETHERNET + (frame[14] & 15) * 4
    return b"".join(
        sorted([frame[26:30] + frame[begin : begin + 2], frame[30:34] + frame[begin + 2 : begin + 4]])
    )


def opens(frame: bytes) -> bool:
    """Whether a TCP packet is the first of a connection."""
    flags = frame[ETHERNET + (frame[14] & 15) * 4 + 13]
    return flags & (SYN | ACK) == SYN


def ports(frame: bytes) -> tuple[int, ...]:
    """The two of a TCP packet over IPv4; of any other none."""
    if frame[12:14] != IPV4 or frame[23] != TCP:
        return ()
    begin = ETHERNET + (frame[14] & 15) * 4
    return struct.unpack_from("!HH", frame, begin)


def with_wrong_bit(frame: bytes) -> bytes:
    """The same with one bit of its TCP payload changed and the checksum made to fit."""
    if not ports(frame):
        return frame
    segment = ETHERNET + (frame[14] & 15) * 4
    begin = segment + (frame[segment + 12] >> 4) * 4
    end = ETHERNET + struct.unpack_from("!H", frame, 16)[0]
    words = range(begin + (begin - segment) % 2, end - 1, 2)
    if not words:
        return frame
    changed, at = bytearray(frame), random.choice(words)
    old = struct.unpack_from("!H", changed, at)[0]
    new = old ^ 1 << random.randrange(16)
    struct.pack_into("!H", changed, at, new)
    checksum = struct.unpack_from("!H", changed, segment + 16)[0]
    total = (~checksum & 0xFFFF) + (~old & 0xFFFF) + new
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", changed, segment + 16, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    return bytes(changed)


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

    def __init__(self, taps: Sequence[int]) -> None:
        self._taps = taps
        self._behind: dict[bytes, int] = {}
        self._paths = {(source, target): Path() for source in taps for target in taps if source != target}
        self._under_way: list[tuple[float, int, int, bytes]] = []  # when, number, where to, frame
        self._count = 0
        self._carried: dict[bytes, float] = {}  # when a connection has carried something

    def rule(self, line: str) -> None:
        """Changes some paths."""
        source, target, *changes = line.split()
        for (one, other), path in self._paths.items():
            if source in ("*", str(self._taps.index(one))) and target in ("*", str(self._taps.index(other))):
                for change in changes:
                    key, _, value = change.partition("=")
                    assert hasattr(path, key), key
                    setattr(path, key, float(value))

    def run(self, rules: int) -> None:
        """Until the descriptor ``rules`` ends."""
        polled = select.epoll()
        for descriptor in (*self._taps, rules):
            polled.register(descriptor, select.EPOLLIN)
        while True:
            wait = self._under_way[0][0] - time.monotonic() if self._under_way else -1
            for descriptor, _ in polled.poll(max(wait, 0) if self._under_way else -1):
                if descriptor != rules:
                    self._take(descriptor)
                    continue
                lines = os.read(rules, MOST_BYTES).decode()
                if not lines:
                    return
                for line in lines.splitlines():
                    self.rule(line)
                    print("ok", flush=True)
            self._deliver()

    def _take(self, tap: int) -> None:
        while True:
            try:
                frame = os.read(tap, MOST_BYTES)
            except BlockingIOError:
                return
            self._behind[frame[6:12]] = tap
            known = self._behind.get(frame[:6])
            for target in self._taps if known is None else (known,):
                if target != tap:
                    self._send(self._paths[tap, target], target, frame)

    def _send(self, path: Path, target: int, frame: bytes) -> None:
        if path.loses(frame) or self._has_forgotten(path, frame):
            return
        if random.random() < path.corrupt:
            frame = with_wrong_bit(frame)
        for _ in range(2 if random.random() < path.twice else 1):
            due = path.due(frame, time.monotonic())
            if due is not None:
                self._count += 1
                heapq.heappush(self._under_way, (due, self._count, target, frame))

    def _has_forgotten(self, path: Path, frame: bytes) -> bool:
        """As stateful firewalls do, and tell nobody: what is under way on such a connection vanishes."""
        key = connection(frame) if path.idle else b""
        if not key:
            return False
        now = time.monotonic()
        if not opens(frame) and now > self._carried.get(key, now) + path.idle:
            return True
        self._carried[key] = now
        return False

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(self._under_way)
            self._write(target, frame)

    def _write(self, tap: int, frame: bytes) -> None:
        try:
            os.write(tap, frame)
        except OSError:  # the interface is down, or full: as on a wire, the frame is lost
            pass


def main() -> None:
    switch = Switch([interface(namespace, "eth0") for namespace in sys.argv[1:]])
    print("ready", flush=True)
    switch.run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
