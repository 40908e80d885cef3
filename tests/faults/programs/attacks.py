"""What ranks do in the cases of the layer "input and security"."""

import os
import struct
import time
from pathlib import Path

import plain
from plain import fault, right, start, steps

from horovod.common import basics as hvd


def waits(seconds: str) -> None:
    """Rank 1 comes late to init, so that the others have their doors open meanwhile."""
    if os.environ["HOROVOD_RANK"] == "1":
        time.sleep(float(seconds))
    begin = time.monotonic()
    start()
    print(f"rank {hvd.rank()} started in {time.monotonic() - begin:.1f} s", flush=True)
    steps(200)
    right()
    hvd.shutdown()


def malicious(what: str) -> None:
    """Rank 1 sends what the library never would, over its links."""
    import socket

    if start() == 1:
        fault()
        frames = {
            "zeros": bytes(64),
            "long": struct.pack("<IIQQ", 1, 1, 1 << 40, 1 << 40) * 4,
            "random": os.urandom(256),
        }
        for fd in dict.fromkeys(plain.links.values()):
            with socket.socket(fileno=os.dup(fd)) as link:
                link.send(frames[what])
    steps(10**9, pause=0.001)


def shows_itself(seconds: str) -> None:
    """Trains while others look at it."""
    start()
    own = Path("/proc/self/environ").read_bytes()
    print(f"rank {hvd.rank()} secret in its environment: {b'HOROVOD_SECRET_KEY=' in own}", flush=True)
    end = time.monotonic() + float(seconds)
    while plain.allreduce("go on", plain.Memory(1, float(time.monotonic() < end))).is_all(hvd.size()):
        steps(1, pause=0.01)
    right()
    hvd.shutdown()


if __name__ == "__main__":
    plain.main(globals())
