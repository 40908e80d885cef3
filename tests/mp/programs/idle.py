"""One rank: after some work, prints the share of a core that ten idle seconds take."""

import time

import numpy as np

from horovod import _core
from horovod.bootstrap.start import start, stop

SECONDS = 10.0


def main() -> None:
    start()
    data = np.ones(1000, np.float32)
    tensor = (data.ctypes.data, data.ctypes.data, _core.DTYPES["float32"], data.shape)
    _core.wait(_core.submit(_core.ALLREDUCE, "warm", [tensor]))
    _core.run(_core.BARRIER, None, [])
    before = time.process_time()
    time.sleep(SECONDS)
    share = (time.process_time() - before) / SECONDS
    _core.run(_core.BARRIER, None, [])
    stop()
    print(f"idle share {share:.6f}", flush=True)


main()
