"""Operations over plain memory, for the programs of the fault cases: no framework, no numpy."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from horovod import _core
from horovod.common import basics as hvd
from horovod.common.reduce_ops import Sum

TYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32}
LIFETIME = 600  # seconds: should whoever plays the case be gone, so is this rank at last
links: dict[tuple[int, int], int] = {}  # by role and peer: the descriptors that the core was given


class Memory:
    """An array of the core's types, all elements equal."""

    def __init__(self, count: int, value: float = 1.0, dtype: str = "float32") -> None:
        kind = TYPES[dtype]
        self.data = (kind * count)(*([kind(value).value] * count)) if count < 1000 else (kind * count)()
        if count >= 1000 and value:
            ctypes.memmove(
                self.data,
                (kind * count).from_buffer_copy(bytes(kind(value)) * count),
                count * ctypes.sizeof(kind),
            )
        self.dtype = dtype
        self.count = count

    def spec(self, shape: Sequence[int] | None = None) -> tuple[int, int, int, Sequence[int], int, int]:
        """For the core: reduced in place."""
        address, size = ctypes.addressof(self.data), ctypes.sizeof(self.data)
        return address, address, _core.DTYPES[self.dtype], shape or (self.count,), size, size

    def is_all(self, value: float) -> bool:
        """Whether every element has this value."""
        return bytes(self.data) == bytes(TYPES[self.dtype](value)) * self.count


def allreduce(name: str | None, memory: Memory, **options: object) -> Memory:
    """Reduces ``memory`` in place, as a sum unless ``options`` say otherwise."""
    _core.run(_core.ALLREDUCE, name, [memory.spec()], **{"op": Sum, **options})
    return memory


def start(value: float = 1.0) -> int:
    """init, and a first step that all take together; returns the rank."""
    hvd.init()
    steps(3, value)
    print(f"rank {hvd.rank()} is under way", flush=True)
    return hvd.rank()


def steps(count: int, value: float = 1.0, pause: float = 0.0) -> None:
    """Steps of a training: two tensors each, of which the sums are checked."""
    for _ in range(count):
        for name, elements in (("weight", 4096), ("bias", 3)):
            check(allreduce(name, Memory(elements, value)).is_all(value * hvd.size()))
        time.sleep(pause)


def check(is_right: bool) -> None:
    """Says so where a result is wrong: the driver looks for it in the output."""
    if not is_right:
        print("WRONG", "RESULT", flush=True)
        os._exit(99)


def fault() -> None:
    """Notes the time of the fault, which comes next."""
    print(f"fault at {time.time():.3f}", flush=True)


def told() -> None:
    """Notes the time at which this rank has heard of the fault."""
    print(f"told at {time.time():.3f}", flush=True)


def right() -> None:
    """This rank has checked all its results."""
    print(f"all results are right on rank {os.environ.get('HOROVOD_RANK', 0)}", flush=True)


def main(scenes: dict[str, Callable[..., None]]) -> None:
    """Runs the scene that the first argument names, with the others."""
    signal.alarm(LIFETIME)
    start_core = _core.init

    def note_links(identity, given, *more) -> None:
        links.update({(role, peer): fd for fd, peer, role, _, _ in given})
        start_core(identity, given, *more)

    _core.init = note_links
    print(f"rank {os.environ.get('HOROVOD_RANK', 0)} is process {os.getpid()}", flush=True)
    scenes[sys.argv[1]](*sys.argv[2:])
