"""A job that submits nothing uses no CPU."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch

import horovod.torch as hvd

SECONDS = 3.0
TIMES = 3


def ranks_idle() -> float:
    """After some work, the share of a core that idle seconds take."""
    hvd.init()
    hvd.synchronize(hvd.allreduce_async_(torch.ones(1000), name="warm"))
    hvd.barrier()
    shares = []
    for _ in range(TIMES):  # on a busy machine, what the work has left to do may fall into the first
        before = time.process_time()
        time.sleep(SECONDS)
        shares.append((time.process_time() - before) / SECONDS)
    hvd.barrier()
    return min(shares)


def test_idle_ranks_use_less_than_two_thousandths_of_a_core(run_ranks) -> None:
    def run(transport: str) -> list[float]:
        return run_ranks(2, ranks_idle, env={"HOROVOD_TRANSPORT": transport})

    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(run, ["shm", "tcp"]))
    assert max(shares[0] + shares[1]) < 0.002, shares
