"""One rank: 200 named tensors, each round submitted in an order of this rank's own. argv: rounds."""

import random
import sys

import numpy as np

from horovod import _core
from horovod.bootstrap.start import start, stop

TENSORS = 200


def main() -> None:
    start()
    rank, size = _core.topology()[:2]
    order = random.Random(rank)
    buffers = [np.empty(1 + 13 * t % 700, np.float32) for t in range(TENSORS)]
    float32 = _core.DTYPES["float32"]
    rows = [(b.ctypes.data, b.ctypes.data, float32, b.shape) for b in buffers]
    names = [f"tensor.{t}" for t in range(TENSORS)]
    places = list(range(TENSORS))
    ranks = size * (size + 1) // 2
    for step in range(int(sys.argv[1])):
        for t, buffer in enumerate(buffers):
            buffer.fill((rank + 1) * (t + step))
        order.shuffle(places)
        handles = [_core.submit(_core.ALLREDUCE, names[t], [rows[t]]) for t in places]
        for handle in handles:
            _core.wait(handle)
        for t, buffer in enumerate(buffers):
            assert (buffer == ranks * (t + step)).all(), f"rank {rank}, step {step}, tensor {t}: {buffer[0]}"
    counters = _core.counters()
    assert counters["cache_misses"] == TENSORS, counters
    stop()
    print("every round correct", flush=True)


main()
