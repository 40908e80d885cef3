"""Reduces for ever, and says in a folder who it is: for tests that end it in the middle."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

import horovod.torch as hvd

hvd.init()
for step in range(1_000_000):
    total = hvd.allreduce(torch.full((1000,), float(hvd.rank() + step)), op=hvd.Sum, name="x")
    expected = sum(range(hvd.size())) + step * hvd.size()
    assert np.all(total.numpy() == expected), (step, total[0].item(), expected)
    if step == 3:
        fresh = Path(sys.argv[1], f"new.{hvd.rank()}")
        fresh.write_text(str(os.getpid()))
        fresh.rename(Path(sys.argv[1], f"rank.{hvd.rank()}"))
    time.sleep(0.01)
