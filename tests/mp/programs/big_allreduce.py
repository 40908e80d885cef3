"""One rank: small steps, then 64 MiB allreduces until something fails; prints what failed and when."""

import sys
import time

import numpy as np

from horovod import _core
from horovod.bootstrap.start import start
from horovod.common.exceptions import HorovodInternalError


def main() -> None:
    start()
    rank = _core.topology()[0]
    data = np.ones(16 << 20, np.float32)
    tensor = (
        data.ctypes.data,
        data.ctypes.data,
        _core.DTYPES["float32"],
        data.shape,
        data.nbytes,
        data.nbytes,
    )
    try:
        for _ in range(200):
            _core.run(_core.ALLREDUCE, "big", [tensor])
    except HorovodInternalError as error:
        print(f"rank {rank} failed at {time.time():.3f}: {error}", flush=True)
        sys.exit(1)
    print(f"rank {rank} met no failure", flush=True)


main()
