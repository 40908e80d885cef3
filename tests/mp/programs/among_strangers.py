"""Sums that take a while, on ranks of which the last one is late: the others are found while they listen."""

import os
import sys
import time

import numpy as np
import torch

import horovod.torch as hvd

if int(os.environ["HOROVOD_RANK"]) == int(os.environ["HOROVOD_SIZE"]) - 1:
    time.sleep(3.0)
hvd.init()
end = time.monotonic() + float(sys.argv[1])
step = 0
while hvd.broadcast_object(time.monotonic() < end):
    values = np.random.default_rng([step, hvd.rank()]).standard_normal(10000)
    total = hvd.allreduce(torch.from_numpy(values), op=hvd.Sum, name="values").numpy()
    expected = sum(np.random.default_rng([step, rank]).standard_normal(10000) for rank in range(hvd.size()))
    np.testing.assert_allclose(total, expected, atol=1e-12)
    step += 1
print(f"{step} sums", flush=True)
hvd.shutdown()
