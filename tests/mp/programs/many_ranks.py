"""A job of plain Python that starts, sums a few vectors, compares each byte and ends; or that only imports.

Rank 0 prints the seconds of each part, and the most descriptors that a rank had open.
"""

import os
import sys
import time

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
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


def main() -> None:
    """The job."""
    begin = time.monotonic()
    hvd.init()
    started = time.monotonic()
    reduce_all()
    reduced = time.monotonic()
    everybody = objects.allgather_object(len(os.listdir("/proc/self/fd")))
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    if rank == 0:
        print(
            f"{size} ranks: init {started - begin:.2f} s, reduce {reduced - started:.2f} s, "
            f"end {time.monotonic() - reduced:.2f} s, at most {max(everybody)} descriptors",
            flush=True,
        )


if __name__ == "__main__" and "import-only" not in sys.argv:
    main()
