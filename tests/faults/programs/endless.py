"""What ranks do in the soak, and where a rank is killed in the middle of a collective."""

import os
import random
import signal
import sys
import time

import network
import plain
from plain import Memory, allreduce, check, right, start

from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.common.reduce_ops import Adasum, Sum

ELEMENTS = (1, 100, 5_000, 300_000, 2_000_000)


def train(seconds: str, seed: str, role: str, peer: str) -> None:
    """Allreduces of many sizes, whose sums are checked, for some seconds.

    SIGUSR1 makes the rank leave with status 0; SIGUSR2 makes it break its link of that role to that peer.
    """
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR2, lambda *_: network.break_link(role, int(peer)))
    rank, dice = start(), random.Random(int(seed))
    begin = time.monotonic()
    while True:
        over = time.monotonic() - begin > float(seconds)
        if not allreduce("go on", Memory(1, float(rank > 0 or not over))).is_all(hvd.size()):
            break
        batch = [Memory(dice.choice(ELEMENTS), float(dice.randrange(1, 100))) for _ in range(3)]
        wanted = [memory.data[0] * hvd.size() for memory in batch]
        handles = [_core.submit(_core.ALLREDUCE, f"t{i}", [m.spec()], op=Sum) for i, m in enumerate(batch)]
        for handle in handles:
            _core.wait(handle)
        check(all(memory.is_all(value) for memory, value in zip(batch, wanted, strict=True)))
        print(f"rank {rank}: {'x' * 500}", flush=True)
    right()
    hvd.shutdown()


def _collective(kind: str, memory: Memory) -> None:
    rows = memory.count // 8
    number = _core.ALLREDUCE if kind == "adasum" else getattr(_core, kind.upper())
    options: dict[str, object] = {"root": 0} if kind == "broadcast" else {}
    if kind in ("allreduce", "reducescatter"):
        options["op"] = Sum
    elif kind == "adasum":
        options["op"] = Adasum
    spec = memory.spec((rows, 8))
    if kind in ("allgather", "alltoall", "reducescatter"):
        spec = (spec[0], 0, *spec[2:5], 0)
    if kind == "alltoall":
        options["splits"] = [rows // hvd.size()] * hvd.size()
    _core.run(number, "large", [spec], **options)


def repeat(kind: str) -> None:
    """One collective of 16 MiB over and over; says when it fails."""
    hvd.init()
    memory = Memory(4 << 20, 0.0)
    try:
        _collective(kind, memory)
        print(f"rank {hvd.rank()} is under way", flush=True)
        while True:
            _collective(kind, memory)
    except HorovodInternalError as error:
        print(f"rank {hvd.rank()} failed at {time.time():.3f}: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    plain.main(globals())
