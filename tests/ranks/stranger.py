"""A program without the secret of any job: connects to every TCP port of its network at which somebody
listens, again and again, until its standard input ends.

stranger.py CONNECTIONS [PORT...]

It holds up to CONNECTIONS open at each port, but none at each PORT, which others serve. Some stay silent,
some send garbage, some begin a handshake and leave it at that, some go on with a proof that is none. At the
end it prints as JSON the ports that it has found, how many connections it has made, and all that was sent to
it.
"""

import contextlib
import json
import random
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from horovod.bootstrap.network.auth import LAUNCHER_RANK, Connector, Role, Terms

LISTENS = "0A"
PAUSE = 0.05
KINDS = ("silent", "garbage", "half", "forged")
RANKS = 6

generator = random.Random()


def listening() -> set[tuple[str, int]]:
    """Addresses and ports, from what the kernel shows."""
    found = set()
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                digits, _, port = fields[1].partition(":")
                raw = bytes.fromhex(digits)
                words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]  # of 32 bits, little-endian
                found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def greeting() -> bytes:
    """As a rank would begin, with another secret."""
    role = generator.choice(list(Role))
    rank, other = generator.sample(range(RANKS), 2)
    acceptor = LAUNCHER_RANK if role == Role.LAUNCHER else min(rank, other)
    return Connector(bytes(32), Terms(role, max(rank, other), acceptor, 1)).greeting()


class Stranger:
    """All its connections."""

    def __init__(self, most: int, spared: Collection[int]) -> None:
        self.most = most
        self.spared = spared
        self.held: Counter[tuple[str, int]] = Counter()
        self.made: Counter[str] = Counter()
        self.heard: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the standard input ends."""
        while True:
            for where in listening():
                if where[1] in self.spared:
                    continue
                for _ in range(min(20, self.most - self.held[where])):
                    self.call(where)
            deadline = time.monotonic() + PAUSE
            while time.monotonic() < deadline:
                for key, _ in self.selector.select(PAUSE):
                    if key.fd == 0:
                        return
                    self.hear(key.fileobj, *key.data)

    def call(self, where: tuple[str, int]) -> None:
        """One more connection."""
        kind = generator.choice(KINDS)
        connection = socket.socket(socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
        connection.settimeout(1.0)
        try:
            connection.connect(where)
            if kind == "garbage":
                connection.sendall(generator.randbytes(generator.randrange(1, 4096)))
            elif kind != "silent":
                connection.sendall(greeting())
        except OSError:
            connection.close()
            return
        self.made[kind] += 1
        self.held[where] += 1
        self.selector.register(connection, selectors.EVENT_READ, (kind, where))

    def hear(self, connection: socket.socket, kind: str, where: tuple[str, int]) -> None:
        """What the other side says, or its end."""
        data = b""
        with contextlib.suppress(OSError):
            data = connection.recv(1 << 16)
            if data and kind == "forged":
                connection.sendall(generator.randbytes(32))
        if data:
            self.heard[kind].add(data.hex())
            return
        self.selector.unregister(connection)
        connection.close()
        self.held[where] -= 1


def main() -> None:
    """See the text of this file."""
    most, *spared = map(int, sys.argv[1:])
    stranger = Stranger(most, spared)
    stranger.run()
    heard = {kind: sorted(said) for kind, said in stranger.heard.items()}
    print(json.dumps({"ports": sorted(stranger.held), "made": stranger.made, "heard": heard}))


if __name__ == "__main__":
    main()
