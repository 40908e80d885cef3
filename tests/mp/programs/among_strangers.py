"""Reductions that take a while, on ranks of which the last one is late: the others are found while they
listen.
"""

import os
import sys
import time

import numpy as np
import plain_horovod as hvd

if int(os.environ["HOROVOD_RANK"]) == int(os.environ["HOROVOD_SIZE"]) - 1:
    time.sleep(3.0)
hvd.init()
end = time.monotonic() + float(sys.argv[1])
step = 0
while hvd.broadcast_object(time.monotonic() < end):
    given = [np.random.default_rng([step, rank]).bytes(80000) for rank in range(hvd.size())]
    total = hvd.allreduce_(bytearray(given[hvd.rank()]), op=hvd.Max, name="values")
    assert total == np.max([np.frombuffer(each, np.uint8) for each in given], axis=0).tobytes()
    step += 1
print(f"{step} reductions", flush=True)
hvd.shutdown()
