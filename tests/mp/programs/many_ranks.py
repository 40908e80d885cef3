"""A job of plain Python that starts, sums a few vectors, compares each byte and ends; or that only imports.

python many_ranks.py [HOSTS [VICTIM] | import-only]

HOSTS: the ranks act as if they were on so many hosts, of equal size. Rank 0 prints the seconds of each part,
the most descriptors that a rank had open, and the most sockets after the start and at the end. VICTIM: this
rank is killed at the end; each of the others prints whether its error names it, and after how many seconds.
"""

import contextlib
import os
import signal
import sys
import time

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
from horovod.common.exceptions import HorovodInternalError
from horovod.common.reduce_ops import Sum

LENGTHS = (1, 1000, 300_000)  # in a flag's line, in a slot, in chunks


def expected(size: int, length: int) -> bytes:
    """The sum over the ranks of what each has filled in; bytes wrap around."""
    total = sum(5 * rank for rank in range(size))
    return bytes((total + size * place) % 256 for place in range(min(256, length)))


def reduce_all() -> None:
    """Raises AssertionError when a sum is wrong."""
    rank, size = hvd.rank(), hvd.size()
    for length in LENGTHS:
        pattern = bytes((5 * rank + place) % 256 for place in range(256))
        vector = bytearray((pattern * (length // 256 + 1))[:length])
        operations.allreduce_(vector, op=Sum, name=f"vector.{length}")
        wanted = (expected(size, length) * (length // 256 + 1))[:length]
        assert bytes(vector) == wanted, f"rank {rank}: a wrong sum of {length} bytes"


def act_as_on(hosts: int) -> None:
    """Which host this rank is on, in place of what its launcher says."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    local_size = size // hosts
    place = {
        "HOSTNAME": f"node{rank // local_size}",
        "LOCAL_RANK": rank % local_size,
        "LOCAL_SIZE": local_size,
        "CROSS_RANK": rank // local_size,
        "CROSS_SIZE": hosts,
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in place.items()})


def lose(victim: int) -> None:
    """Goes on until the rank is lost."""
    killed_at = objects.broadcast_object(time.time() + 1, root_rank=0)
    try:
        while True:
            if hvd.rank() == victim and time.time() > killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            reduce_all()
    except HorovodInternalError as error:
        named = "names" if f"rank {victim} " in str(error) else "does not name"
        print(f"after {time.time() - killed_at:.1f} s: {named} rank {victim}", flush=True)


def open_files() -> tuple[int, int]:
    """How many descriptors this process has, and how many of them are sockets."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return len(names), sum(name.startswith("socket:") for name in names)


def main() -> None:
    """The job."""
    begin = time.monotonic()
    if len(sys.argv) > 1:
        act_as_on(int(sys.argv[1]))
    hvd.init()
    started = time.monotonic()
    at_start = open_files()[1]
    reduce_all()
    reduced = time.monotonic()
    everybody = objects.allgather_object((*open_files(), at_start))
    descriptors, sockets, sockets_at_start = (max(column) for column in zip(*everybody, strict=True))
    rank, size = hvd.rank(), hvd.size()
    if len(sys.argv) > 2:
        lose(int(sys.argv[2]))
    hvd.shutdown()
    if rank == 0:
        print(
            f"{size} ranks: init {started - begin:.2f} s, reduce {reduced - started:.2f} s, "
            f"end {time.monotonic() - reduced:.2f} s, at most {descriptors} descriptors, "
            f"{sockets_at_start} sockets at the start and {sockets} at the end",
            flush=True,
        )


if __name__ == "__main__" and "import-only" not in sys.argv:
    main()
