"""Every operation on CUDA tensors of every type, against numpy; streams, groups, layouts, process sets."""

import itertools

import numpy as np
import torch
from rank import begin, say

import horovod.torch as hvd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
OPS = {
    hvd.Sum: lambda stack: stack.sum(0),
    hvd.Average: lambda stack: stack.mean(0),
    hvd.Min: lambda stack: stack.min(0),
    hvd.Max: lambda stack: stack.max(0),
    hvd.Product: lambda stack: stack.prod(0),
}
SHAPES = [(), (1,), (7, 3), (0, 4), (1 << 20,)]
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-12}


def array(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray:
    """What a rank sends: small numbers, which all types have."""
    random = np.random.default_rng([rank, *shape])
    whole = random.integers(1, 4, shape)
    return whole + (random.integers(0, 4, shape) / 4 if dtype.is_floating_point else 0)


def sent(rank: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The same as a tensor of the GPU."""
    return torch.as_tensor(array(rank, shape, dtype)).to(dtype).to(device)


def check(result: torch.Tensor, expected: np.ndarray, what: object) -> None:
    """Compares, within what the type can tell apart."""
    assert result.is_cuda and tuple(result.shape) == expected.shape, what
    tolerance = TOLERANCE.get(result.dtype, 0)
    np.testing.assert_allclose(result.double().cpu(), expected, tolerance, tolerance, err_msg=str(what))


def reductions(device: torch.device) -> None:
    """Every type, reduction and shape: into a new tensor, in place, and with factors."""
    ranks = range(hvd.size())
    for dtype, (op, reduce), shape in itertools.product(FLOATS + INTEGERS, OPS.items(), SHAPES):
        tensor = sent(hvd.rank(), shape, dtype, device)
        expected = reduce(np.stack([array(rank, shape, dtype) for rank in ranks]))
        if not dtype.is_floating_point:  # truncated, and a product too large for the type wraps
            expected = np.trunc(expected).astype(np.int64).astype(str(dtype).removeprefix("torch."))
        what = (dtype, op, shape)
        check(hvd.allreduce(tensor, op=op), expected, what)
        check(hvd.allreduce_(tensor.clone(), op=op, name=f"{what}"), expected, what)
        if dtype.is_floating_point and op in (hvd.Sum, hvd.Average):
            scaled = hvd.allreduce(tensor, op=op, prescale_factor=2.0, postscale_factor=0.5)
            check(scaled, expected, (*what, "factors"))


def rows(device: torch.device) -> None:
    """What moves rows: ranks that give different numbers of them, none too."""
    size, rank = hvd.size(), hvd.rank()
    for dtype in FLOATS + INTEGERS:
        parts = [array(other, (other, 3), dtype) for other in range(size)]
        check(hvd.allgather(sent(rank, (rank, 3), dtype, device)), np.concatenate(parts), dtype)
        root = size - 1
        taken = hvd.broadcast(sent(rank, (5,), dtype, device), root)
        check(taken, array(root, (5,), dtype), dtype)
        counts = [(rank + other) % 3 for other in range(size)]
        given = sent(rank, (sum(counts), 2), dtype, device)
        received, sources = hvd.alltoall(given, splits=torch.tensor(counts))
        expected = []
        for other in range(size):
            theirs = [(other + member) % 3 for member in range(size)]
            start = sum(theirs[:rank])
            expected.append(array(other, (sum(theirs), 2), dtype)[start : start + theirs[rank]])
        check(received, np.concatenate(expected), dtype)
        assert sources.tolist() == [(other + rank) % 3 for other in range(size)]
        total = np.stack([array(other, (2 * size + 1, 2), dtype) for other in range(size)]).sum(0)
        first, count = (0, 3) if rank == 0 else (2 * rank + 1, 2)
        dealt = hvd.reducescatter(sent(rank, (2 * size + 1, 2), dtype, device), op=hvd.Sum)
        check(dealt, total[first : first + count], dtype)


def eight_bits(device: torch.device) -> None:
    """Floats of 8 bits, by NCCL or not. Each element comes from one rank, so that sums are exact."""
    size, rank, index = hvd.size(), hvd.rank(), torch.arange(1001, device=device)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        whole = (1 + index % 3).to(torch.float32)
        mine = torch.where(index % size == rank, whole, torch.zeros_like(whole)).to(dtype)
        assert hvd.allreduce(mine, op=hvd.Sum).float().equal(whole), dtype
        assert hvd.allreduce(mine, op=hvd.Max).float().equal(whole), dtype
        assert hvd.allreduce(whole.to(dtype)).float().equal(whole), dtype
        parts = hvd.reducescatter(mine[: size * 3], op=hvd.Sum)
        assert parts.float().equal(whole[3 * rank : 3 * rank + 3]), dtype
        assert hvd.broadcast(whole.to(dtype), 0).float().equal(whole), dtype
        assert hvd.allgather(whole[: rank + 1].to(dtype)).dtype == dtype


def forms(device: torch.device) -> None:
    """Groups, strided tensors, other streams, process sets, tensors that the host frees early."""
    size, rank = hvd.size(), hvd.rank()
    members = [torch.full((number + 1,), rank + 1.0, device=device) for number in range(20)]
    total = float(sum(range(1, size + 1)))
    for result in hvd.grouped_allreduce(members, op=hvd.Sum):
        assert result.eq(total).all()
    strided = torch.full((64, 32), rank + 1.0, device=device).t()
    hvd.allreduce_(strided, op=hvd.Sum)
    assert strided.eq(total).all()
    side = torch.cuda.Stream(device)
    for _ in range(50):
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            handle = hvd.allreduce_async(torch.ones(1 << 18, device=device) * (rank + 1), op=hvd.Sum)
            gathered = hvd.allgather_async(torch.full((1000,), rank, device=device))
        torch.empty(1 << 18, device=device).fill_(-1)  # memory that may have been freed too early
        assert hvd.synchronize(handle).eq(total).all()
        expected = torch.arange(size, device=device).repeat_interleave(1000)
        assert hvd.synchronize(gathered).eq(expected).all()
    alone = [hvd.ProcessSet([other]) for other in range(size)]
    for process_set in alone:
        hvd.add_process_set(process_set)
    assert hvd.allreduce(members[3], op=hvd.Sum, process_set=alone[rank]).eq(rank + 1.0).all()


def captures(device: torch.device) -> None:
    """A stream that captures a graph refuses an operation, and goes on afterwards."""
    tensor = torch.ones(4, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = tensor * 2
        try:
            hvd.allreduce(doubled)
        except ValueError as error:
            assert "captures a graph" in str(error)
        else:
            raise AssertionError("an operation was captured")
    graph.replay()
    assert hvd.allreduce(doubled, op=hvd.Average).eq(2).all()


if __name__ == "__main__":
    gpu = begin(process_sets="dynamic")
    for part in (reductions, rows, eight_bits, forms, captures):
        part(gpu)
        torch.cuda.synchronize()
        hvd.barrier()
        say(f"ok {part.__name__}")
