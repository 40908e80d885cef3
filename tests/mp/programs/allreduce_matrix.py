"""One rank: allreduce of every dtype and operation against numpy. argv: comma lists of sizes, dtypes, ops."""

import hashlib
import os
import sys

import numpy as np
from numpy_reference import OPS, close, combine, random_block

from horovod import _core
from horovod.bootstrap.start import start, stop


def reduce(name: str, data: np.ndarray, dtype: str, op: str) -> np.ndarray:
    out = data.copy()  # the core reduces in place
    address = out.ctypes.data if out.size else 0
    _core.run(_core.ALLREDUCE, name, [(address, address, _core.DTYPES[dtype], out.shape)], OPS[op])
    return out


def check(rank: int, size: int, dtype: str, op: str, count: int, exact: bool) -> memoryview:
    blocks = [random_block(1000 * count + 10 * r + OPS[op], dtype, count) for r in range(size)]
    got = reduce(f"{dtype}.{op}.{count}", np.resize(blocks[rank], count), dtype, op)
    want = np.resize(combine(blocks, op, dtype), count)
    assert close(got, want, dtype, size, exact), (
        f"rank {rank}: {dtype} {op} of {count} elements differs from numpy"
    )
    return got.data


def main() -> None:
    sizes, dtypes, ops = (argument.split(",") for argument in sys.argv[1:4])
    start()
    rank, size = _core.topology()[:2]
    exact = os.environ.get("HOROVOD_TRANSPORT") != "tcp" or size < 3
    digest = hashlib.sha256()
    done = 0
    for dtype in _core.DTYPES if dtypes == ["all"] else dtypes:
        for op in OPS if ops == ["all"] else ops:
            for count in map(int, sizes):
                if dtype == "bool" and op == "Average":
                    continue
                digest.update(check(rank, size, dtype, op, count, exact))
                done += 1
    mine = np.frombuffer(digest.digest(), np.uint8).copy()
    row = (mine.ctypes.data, 0, _core.DTYPES["uint8"], (1, mine.size))
    everybody = np.from_dlpack(_core.run(_core.ALLGATHER, "digests", [row])[0])
    assert (everybody == mine).all(), "the ranks hold different bits"
    stop()
    print(f"{done} checked")


main()
