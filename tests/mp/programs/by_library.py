"""The collectives as users call them, on random data against numpy, on all ranks and on sets that overlap:
one program for whatever carries them. Then the ranks leave one by one, the first as soon as it has its own
result. The argument is the name of a thread that must run.
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np
import torch

import horovod.torch as hvd

sys.path.append(str(Path(__file__).parents[2] / "ranks"))
import threads

INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64)
FLOATS_OF_8_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (*FLOATS_OF_8_BITS, torch.float16, torch.bfloat16, torch.float32, torch.float64)
TYPES = (torch.bool, torch.int64, *INTEGERS, *FLOATS)
SIZES = (0, 1, 7, 1000)
LARGE = ((300_001, torch.float32), (300_001, torch.bfloat16))
LARGER_THAN_A_ROUND = 9_000_001  # of float32: a round of a library has 32 MiB


def tensor_of(rank: int, size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small integers, whose sums and products among four ranks are exact in the type."""
    end = 3 if dtype in FLOATS_OF_8_BITS else 4
    return torch.from_numpy(np.random.default_rng([seed, rank]).integers(0, end, size)).to(dtype)


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """For the reference."""
    return tensor.to(torch.float64).numpy()


def check(got: torch.Tensor, wanted: np.ndarray, doing: str) -> None:
    """Equal, also in shape; of bool, whatever is not 0 is True."""
    values = numbers(got)
    expected = (wanted != 0).astype(float) if got.dtype == torch.bool else wanted
    assert values.shape == expected.shape and np.array_equal(values, expected), doing


def reductions(members: hvd.ProcessSet, own: torch.Tensor, given: list[np.ndarray], doing: str) -> None:
    """The library's, with factors, and those that stay our own."""
    total, count, place = sum(given), len(given), members.rank()
    for op, wanted in (
        ("Sum", total),
        ("Product", np.prod(given, axis=0)),
        ("Max", np.max(given, axis=0)),
        ("Min", np.min(given, axis=0)),
    ):
        check(hvd.allreduce(own, op=getattr(hvd, op), process_set=members), wanted, f"{op}, {doing}")
    if own.dtype != torch.bool:
        twice = hvd.allreduce(own, op=hvd.Sum, prescale_factor=4.0, postscale_factor=0.5, process_set=members)
        check(twice, 2.0 * total, f"factors, {doing}")
        average = numbers(hvd.allreduce(own, process_set=members))
        exact = total / count if own.dtype.is_floating_point else total // count
        rounding = 2**-3 if own.dtype in FLOATS_OF_8_BITS else 2**-8
        assert np.allclose(average, exact, rtol=rounding, atol=0), f"average, {doing}"
    rows = own[: own.numel() // count * count]
    parts = np.split(total[: rows.numel()], count)
    check(hvd.reducescatter(rows, op=hvd.Sum, process_set=members), parts[place], f"reducescatter, {doing}")
    pieces = [own, own[:0], own[: own.numel() // 3]]
    group = hvd.grouped_allreduce(pieces, op=hvd.Sum, process_set=members)
    for got, piece in zip(group, pieces, strict=True):
        check(got, total[: piece.numel()], f"group, {doing}")


def exchanges(members: hvd.ProcessSet, own: torch.Tensor, given: list[np.ndarray], doing: str) -> None:
    """Parts of unequal size too."""
    count, place, size = len(given), members.rank(), own.numel()
    kept = [max(0, size - 3 * at) for at in range(count)]
    gathered = np.concatenate([each[:keep] for each, keep in zip(given, kept, strict=True)])
    check(hvd.allgather(own[: kept[place]], process_set=members), gathered, f"allgather, {doing}")
    for root in (0, count - 1):
        got = hvd.broadcast(own, root_rank=members.ranks[root], process_set=members)
        check(got, given[root], f"broadcast, {doing}")
    bounds = np.linspace(0, size, count + 1).astype(int)
    splits = torch.tensor(np.diff(bounds))
    received, _ = hvd.alltoall(own, splits=splits, process_set=members)
    arrived = np.concatenate([each[bounds[place] : bounds[place + 1]] for each in given])
    check(received, arrived, f"alltoall, {doing}")
    hvd.barrier(process_set=members)


def run_all(members: hvd.ProcessSet, *cases: tuple[int, torch.dtype]) -> None:
    """All kinds among the members, with these sizes and types."""
    for seed, (size, dtype) in enumerate(cases):
        tensors = [tensor_of(rank, size, dtype, seed) for rank in members.ranks]
        given, doing = [numbers(each) for each in tensors], f"{size} of {dtype} among {members.ranks}"
        reductions(members, tensors[members.rank()], given, doing)
        exchanges(members, tensors[members.rank()], given, doing)


def run_large() -> None:
    """In several rounds, the last of which is short."""
    rank, size = hvd.rank(), hvd.size()
    own = torch.arange(LARGER_THAN_A_ROUND, dtype=torch.float32).fmod_(97.0)
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum), own * size)
    got = hvd.broadcast(own + rank, root_rank=size - 1)
    assert torch.equal(got, own + (size - 1))
    matrix = own[: LARGER_THAN_A_ROUND // size // 3 * size * 3].view(-1, 3)
    received = hvd.alltoall(matrix + rank)
    part = matrix[len(matrix) // size * rank : len(matrix) // size * (rank + 1)]
    assert torch.equal(received, torch.cat([part + peer for peer in range(size)]))
    assert torch.equal(hvd.allgather(own[: 1 + rank]), torch.cat([own[: 1 + peer] for peer in range(size)]))
    assert torch.equal(hvd.allreduce(own[:1000], op=hvd.Adasum), own[:1000])  # of equal vectors


def join_one_by_one() -> None:
    """Those that have joined count as zeros."""
    for step in range(hvd.rank()):
        assert hvd.allreduce(torch.ones(5), op=hvd.Sum, name=f"step {step}")[0] == hvd.size() - 1 - step
    assert hvd.join() == hvd.size() - 1


def leave_one_by_one() -> None:
    """A rank that has its result may end while others still wait for theirs."""
    for _ in range(3):
        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        handle = hvd.allreduce_async(torch.ones(2_000_000), op=hvd.Sum, name="last")
        time.sleep(0.1 * rank)
        assert bool((hvd.synchronize(handle) == size).all())
        hvd.shutdown()


sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]  # of three ranks or more
hvd.init()
for process_set in sets if hvd.size() > 2 else ():
    hvd.add_process_set(process_set)
run_all(hvd.global_process_set, *itertools.product(SIZES, TYPES), *LARGE)
for process_set in sets if hvd.size() > 2 else ():
    if process_set.included():
        run_all(process_set, *itertools.product(SIZES[1:3], TYPES), LARGE[0])
if hvd.size() < 4:  # it takes long
    run_large()
join_one_by_one()
assert sys.argv[1] in threads.names(), threads.names()
rank = hvd.rank()
hvd.shutdown()
leave_one_by_one()
print(f"rank {rank} is done", flush=True)
