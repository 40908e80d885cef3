"""One rank: 1,000 tensors of 1 KiB a step; collectives used and operations announced in full."""

import numpy as np

from horovod import _core
from horovod.bootstrap.start import start, stop

TENSORS = 1000
STEPS = 5


def main() -> None:
    start()
    rank, size = _core.topology()[:2]
    buffers = [np.full(256, t, np.float32) for t in range(TENSORS)]
    float32 = _core.DTYPES["float32"]
    rows = [(b.ctypes.data, b.ctypes.data, float32, b.shape) for b in buffers]
    for step in range(STEPS):
        for t, buffer in enumerate(buffers):
            buffer.fill(t + rank)
        _core.run(_core.BARRIER, None, [])
        before = _core.counters()
        handles = [_core.submit(_core.ALLREDUCE, f"small.{t}", [rows[t]]) for t in range(TENSORS)]
        for handle in handles:
            _core.wait(handle)
        after = _core.counters()
        collectives, misses = (after[key] - before[key] for key in ("collectives", "cache_misses"))
        assert all((b == size * t + size * (size - 1) // 2).all() for t, b in enumerate(buffers))
        assert misses == (TENSORS if step == 0 else 0), f"step {step}: {misses} announced in full"
        print(f"rank {rank} step {step}: {collectives} collectives", flush=True)
    stop()


main()
