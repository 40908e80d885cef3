"""Ranks of plain Python, of which rank 1 may not get more memory: from the start, or from a step on."""

import os
import resource
import sys
import time
from pathlib import Path

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import operations
from horovod.common.reduce_ops import Sum

CULPRIT = 1
FOR_THE_START = 4 << 20  # enough for links, too little for what the ranks share
STEPS_BEFORE = 3
STEPS = 20_000  # their names take megabytes: more than may lie free in what the process has


def limit_memory(more: int) -> None:
    """What this process may have from now on besides what it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def start() -> None:
    """The culprit is the last to end."""
    if int(os.environ["HOROVOD_RANK"]) != CULPRIT:
        return hvd.init()
    limit_memory(FOR_THE_START)
    try:
        hvd.init()
    except BaseException:
        time.sleep(1)
        raise


def reduce_under_new_names() -> None:
    """Each name is one more to remember; nothing that Python makes here is big."""
    hvd.init()
    vector = bytearray(200_000)
    for step in range(STEPS):
        if step == STEPS_BEFORE and hvd.rank() == CULPRIT:
            time.sleep(1)  # every thread has begun
            limit_memory(0)
        operations.allreduce_(vector, op=Sum, name=f"vector.{step}")


if __name__ == "__main__":
    {"start": start, "operations": reduce_under_new_names}[sys.argv[1]]()
