"""How fast an allreduce of CUDA tensors is, beside torch.distributed over NCCL in the same processes, and
what a call costs the host.

Two ranks on one GPU share its memory: there the times say nothing about bandwidth.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed
from rank import begin, say

import horovod.torch as hvd

SIZES = [1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26]  # elements of float32
ROUNDS = 20
CALLS = 500


def per_call(call: Callable[[], object]) -> float:
    """Seconds of the GPU for one of ROUNDS calls, the best of five tries."""
    best = float("inf")
    for _ in range(5):
        hvd.barrier()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(ROUNDS):
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1000 / ROUNDS)
    return best


def per_host_call(call: Callable[[], object]) -> float:
    """Seconds of the host for one call that does not wait for the GPU, the median of CALLS."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        torch.cuda.synchronize()
    return sorted(times)[CALLS // 2]


def start_torch(device: torch.device) -> None:
    """The process group of torch.distributed, for the same ranks, which find each other by a file."""
    file = Path(tempfile.gettempdir()) / f"hvd-gpu-speed-{os.getpid()}"
    store = torch.distributed.FileStore(str(hvd.broadcast_object(str(file), root_rank=0)), hvd.size())
    torch.distributed.init_process_group(
        "nccl", store=store, rank=hvd.rank(), world_size=hvd.size(), device_id=device
    )


def main() -> None:
    """Prints a table."""
    device = begin()
    start_torch(device)
    say(f"{'bytes':>12} {'horovod us':>12} {'torch us':>12} {'horovod GB/s':>13} {'torch GB/s':>11}")
    for count in SIZES:
        tensor = torch.zeros(count, device=device)
        ours = per_call(lambda tensor=tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="speed"))
        theirs = per_call(lambda tensor=tensor: torch.distributed.all_reduce(tensor))
        share = 2 * (hvd.size() - 1) / hvd.size() * count * 4 / 1e9
        say(
            f"{count * 4:12} {ours * 1e6:12.1f} {theirs * 1e6:12.1f} "
            f"{share / ours:13.1f} {share / theirs:11.1f}"
        )
    small = torch.zeros(1024, device=device)
    ours = per_host_call(lambda: hvd.allreduce_(small, op=hvd.Sum, name="speed"))
    theirs = per_host_call(lambda: torch.distributed.all_reduce(small))
    say(f"host time of one call: horovod {ours * 1e6:.1f} us, torch {theirs * 1e6:.1f} us")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
