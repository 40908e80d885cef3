"""Every collective on random data against numpy, on all ranks and on sets that overlap. Then the ranks leave
one by one, the first as soon as it has its own result. The argument is the name of a thread that must run.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

import horovod.torch as hvd

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)
SIZES = (0, 1, 7, 1000, 300_001)


def tensor_of(rank: int, size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small integers, whose sums are exact in every type."""
    return torch.from_numpy(np.random.default_rng([seed, rank]).integers(0, 5, size)).to(dtype)


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """For the reference."""
    return tensor.to(torch.float64).numpy()


def check(got: torch.Tensor, wanted: np.ndarray, doing: str) -> None:
    """Equal, also in shape."""
    values = numbers(got)
    assert values.shape == wanted.shape and np.array_equal(values, wanted), doing


def reductions(members: hvd.ProcessSet, own: torch.Tensor, given: list[np.ndarray], doing: str) -> None:
    """The library's, with factors, and those that stay our own."""
    total, count = sum(given), len(given)
    check(hvd.allreduce(own, op=hvd.Sum, process_set=members), total, f"sum, {doing}")
    check(hvd.allreduce(own, op=hvd.Max, process_set=members), np.maximum.reduce(given), f"max, {doing}")
    check(hvd.allreduce(own, op=hvd.Min, process_set=members), np.minimum.reduce(given), f"min, {doing}")
    twice = hvd.allreduce(own, op=hvd.Sum, prescale_factor=4.0, postscale_factor=0.5, process_set=members)
    check(twice, 2.0 * total, f"factors, {doing}")
    if own.dtype.is_floating_point and count in (1, 2, 4):
        check(hvd.allreduce(own, process_set=members), total / count, f"average, {doing}")
    rows = own[: own.numel() // count * count]
    parts = np.split(total[: rows.numel()], count)
    place = members.rank()
    check(hvd.reducescatter(rows, op=hvd.Sum, process_set=members), parts[place], f"reducescatter, {doing}")


def exchanges(members: hvd.ProcessSet, own: torch.Tensor, given: list[np.ndarray], doing: str) -> None:
    """Parts of unequal size too."""
    count, place, size = len(given), members.rank(), own.numel()
    kept = [max(0, size - 3 * at) for at in range(count)]
    gathered = np.concatenate([each[:keep] for each, keep in zip(given, kept, strict=True)])
    check(hvd.allgather(own[: kept[place]], process_set=members), gathered, f"allgather, {doing}")
    root = members.ranks[-1]
    check(hvd.broadcast(own, root_rank=root, process_set=members), given[-1], f"broadcast, {doing}")
    bounds = np.linspace(0, size, count + 1).astype(int)
    splits = torch.tensor(np.diff(bounds))
    received, _ = hvd.alltoall(own, splits=splits, process_set=members)
    arrived = np.concatenate([each[bounds[place] : bounds[place + 1]] for each in given])
    check(received, arrived, f"alltoall, {doing}")
    hvd.barrier(process_set=members)


def run_all(members: hvd.ProcessSet) -> None:
    """All kinds, sizes and types among the members."""
    for seed, (size, dtype) in enumerate((size, dtype) for size in SIZES for dtype in TYPES):
        tensors = [tensor_of(rank, size, dtype, seed) for rank in members.ranks]
        given, doing = [numbers(each) for each in tensors], f"{size} of {dtype} among {members.ranks}"
        reductions(members, tensors[members.rank()], given, doing)
        exchanges(members, tensors[members.rank()], given, doing)


def leave_one_by_one() -> None:
    """A rank that has its result may end while others still wait for theirs."""
    for _ in range(3):
        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        handle = hvd.allreduce_async(torch.ones(2_000_000), op=hvd.Sum, name="last")
        time.sleep(0.2 * rank)
        assert bool((hvd.synchronize(handle) == size).all())
        hvd.shutdown()


sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]  # of three ranks or more
hvd.init()
for process_set in sets if hvd.size() > 2 else ():
    hvd.add_process_set(process_set)
run_all(hvd.global_process_set)
for process_set in sets if hvd.size() > 2 else ():
    if process_set.included():
        run_all(process_set)
names = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
assert sys.argv[1] in names, names
rank = hvd.rank()
hvd.shutdown()
leave_one_by_one()
print(f"rank {rank} is done", flush=True)
