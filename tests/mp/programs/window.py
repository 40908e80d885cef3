"""Polls a batch once, three milliseconds after it was submitted; says how often it was complete by then."""

import time

import torch

import horovod.torch as hvd

hvd.init()
tensor = torch.zeros(256)
is_complete = []
for _ in range(50):
    begin = time.monotonic()
    handle = hvd.allreduce_async_(tensor, name="t")
    time.sleep(0.003)
    seen = hvd.poll(handle)
    if (
        time.monotonic() - begin < 0.0045
    ):  # else the machine was busy, and more time has passed than is asked for
        is_complete.append(seen)
    hvd.synchronize(handle)
print(f"complete {sum(is_complete)} of {len(is_complete)}", flush=True)
hvd.shutdown()
