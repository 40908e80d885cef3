"""Every collective of torch.distributed on the backend "hvd", in all its forms, against numpy."""

import itertools
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from process_groups import as_tensor, check, in_another_order, process_group, random_arrays

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32]
MOVED = [*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fnuz]
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 3, 2), (40_000,)]
LARGE = 300_000
OPS: dict[str, Callable[..., Any]] = {
    "SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
BITWISE = ("BAND", "BOR", "BXOR")


def reductions_of(dtype: torch.dtype) -> list[str]:
    if dtype.is_complex:
        return ["SUM"]
    return ["SUM", "PRODUCT", "MIN", "MAX", *(() if dtype.is_floating_point else BITWISE)]


def reduced(op: str, arrays: list[np.ndarray]) -> np.ndarray:
    return reduce(OPS[op], arrays)


def every_reduction() -> None:
    with process_group() as (rank, size):
        seeds = itertools.count()
        for dtype, shape in itertools.product([*FLOATS, *INTEGERS, torch.complex64], SHAPES):
            for op in reductions_of(dtype):
                given = random_arrays(next(seeds), size, shape, dtype)
                expected, doing = reduced(op, given), (dtype, shape, op)
                tensor = as_tensor(given[rank], dtype)
                dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                check(tensor, expected, doing)
                tensor = as_tensor(given[rank], dtype)
                root = next(seeds) % size
                dist.reduce(tensor, root, getattr(dist.ReduceOp, op))
                check(tensor, expected if rank == root else given[rank], ("reduce", *doing))


def factors() -> None:
    with process_group() as (rank, size):
        given = random_arrays(1, size, (6, size), torch.float32)
        mean = sum(given) / size
        tensor = as_tensor(given[rank], torch.float32)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        torch.testing.assert_close(tensor, as_tensor(mean, torch.float32))
        for factor in (0.5, torch.tensor([0.5])):
            tensor = as_tensor(given[rank], torch.float32)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            check(tensor, sum(given) * 0.5, "PREMUL_SUM")
            part = torch.empty(6)
            dist.reduce_scatter_tensor(
                part, as_tensor(given[rank].T, torch.float32), dist._make_nccl_premul_sum(factor)
            )
            check(part, sum(given)[:, rank] * 0.5, "PREMUL_SUM of a reduce-scatter")


def booleans() -> None:
    with process_group() as (rank, size):
        given = random_arrays(3, size, (50,), torch.bool)
        for op, combine in (("SUM", np.bitwise_or), ("PRODUCT", np.bitwise_and), ("BXOR", np.bitwise_xor)):
            tensor = as_tensor(given[rank], torch.bool)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            check(tensor, reduce(combine, given), op)


def every_move() -> None:
    with process_group() as (rank, size):
        seeds = itertools.count(1000)
        for dtype, shape in itertools.product(MOVED, SHAPES):
            given = random_arrays(next(seeds), size, shape, dtype)
            own, doing, root = as_tensor(given[rank], dtype), (dtype, shape), next(seeds) % size
            tensor = own.clone()
            dist.broadcast(tensor, root)
            check(tensor, given[root], ("broadcast", *doing))
            parts = [torch.empty_like(own) for _ in range(size)]
            dist.all_gather(parts, own)
            for part, array in zip(parts, given, strict=True):
                check(part, array, ("all_gather", *doing))
            whole = torch.empty((size, *shape), dtype=dtype)
            dist.all_gather_into_tensor(whole, own)
            check(whole, np.stack(given), ("all_gather_into_tensor", *doing))
            parts = [torch.empty_like(own) for _ in range(size)]
            dist.gather(own, parts if rank == root else None, root)
            for part, array in zip(parts if rank == root else (), given, strict=rank == root):
                check(part, array, ("gather", *doing))
            tensor = torch.empty_like(own)
            dist.scatter(tensor, [as_tensor(array, dtype) for array in given] if rank == root else None, root)
            check(tensor, given[rank], ("scatter", *doing))


def every_exchange() -> None:
    with process_group() as (rank, size):
        generator = np.random.default_rng(7)
        for dtype, rows, width in itertools.product(MOVED, (1, 3), (1, 4)):
            given = random_arrays(rows, size, (size * rows, width), dtype)
            blocks = [np.split(array, size) for array in given]
            out = torch.empty((size * rows, width), dtype=dtype)
            dist.all_to_all_single(out, as_tensor(given[rank], dtype))
            check(out, np.concatenate([block[rank] for block in blocks]), (dtype, rows, width))
            splits = generator.integers(0, 3, (size, size))
            total = [int(row.sum()) for row in splits]
            uneven = random_arrays(rows + 10, size, (max(total), width), dtype)
            parts = [
                np.split(a[:n], np.cumsum(s)[:-1]) for a, n, s in zip(uneven, total, splits, strict=True)
            ]
            expected = np.concatenate([part[rank] for part in parts])
            out = torch.empty(expected.shape, dtype=dtype)
            own = as_tensor(uneven[rank][: total[rank]], dtype)
            dist.all_to_all_single(out, own, splits[:, rank].tolist(), splits[rank].tolist())
            check(out, expected, ("uneven", dtype))
            outs = [torch.empty(part[rank].shape, dtype=dtype) for part in parts]
            dist.all_to_all(outs, [as_tensor(part, dtype) for part in parts[rank]])
            for found, part in zip(outs, parts, strict=True):
                check(found, part[rank], ("all_to_all", dtype))


def shared_memory() -> None:
    """As a program has it that keeps one buffer for what it sends and what it receives."""
    with process_group() as (rank, size):
        for length in (size, size * 100, size * LARGE):
            given = [torch.arange(length, dtype=torch.float32) + 1000 * each for each in range(size)]
            for shift in (0, length // size + 1, length):
                whole = torch.zeros(2 * length)
                sent, received = whole[:length].copy_(given[rank]), whole[shift : shift + length]
                dist.all_to_all_single(received, sent)
                expected = torch.cat([each.chunk(size)[rank] for each in given])
                assert torch.equal(received, expected), ("all_to_all_single", length, shift)
            for shift in (rank * length, 0, 1, length // 2, (size - 1) * length):
                whole = torch.zeros(size * length)
                dist.all_gather_into_tensor(whole, whole[shift : shift + length].copy_(given[rank]))
                assert torch.equal(whole, torch.cat(given)), ("all_gather_into_tensor", length, shift)


def every_reduce_scatter() -> None:
    with process_group() as (rank, size):
        for dtype, width in itertools.product([*FLOATS[:4], torch.int32, torch.complex64], (1, 5, LARGE)):
            for op in reductions_of(dtype)[: 7 if width < LARGE else 1]:
                given = random_arrays(width, size, (size, width), dtype)
                expected, number = reduced(op, given)[rank], getattr(dist.ReduceOp, op)
                out = torch.empty(width, dtype=dtype)
                dist.reduce_scatter_tensor(out, as_tensor(given[rank], dtype), number)
                check(out, expected, (dtype, width, op))
                out = torch.empty(width, dtype=dtype)
                dist.reduce_scatter(out, list(as_tensor(given[rank], dtype)), number)
                check(out, expected, ("list", dtype, width, op))
        uneven = random_arrays(5, size, (sum(range(1, size + 1)),), torch.float32)
        cuts = np.cumsum(range(1, size + 1))[:-1]
        out = torch.empty(rank + 1)
        dist.reduce_scatter(out, [as_tensor(p, torch.float32) for p in np.split(uneven[rank], cuts)])
        check(out, np.split(sum(uneven), cuts)[rank], "parts of different sizes")


def unusual_memory() -> None:
    """Views that are not contiguous, conjugated, shared by input and output."""
    with process_group() as (rank, size):
        given = random_arrays(11, size, (4, 6), torch.float32)
        view = as_tensor(given[rank], torch.float32).t()
        dist.all_reduce(view)
        check(view, sum(given).T, "a transposed view")
        base = torch.zeros(size, 6, 2)
        dist.all_gather(list(base[..., 0].unbind(0)), as_tensor(given[rank][0], torch.float32))
        check(base[..., 0], np.stack([array[0] for array in given]), "into strided rows")
        assert not base[..., 1].any()
        whole = torch.zeros(size, 24)
        whole[rank] = as_tensor(given[rank], torch.float32).view(-1)
        dist.all_gather_into_tensor(whole, whole[rank])  # as FSDP does
        check(whole, np.stack([array.reshape(-1) for array in given]), "in place")
        one_row = torch.zeros(1, 24 * size)  # as many elements, whatever the shape
        dist.all_gather_into_tensor(one_row, as_tensor(given[rank], torch.float32))
        check(one_row.view(size, 4, 6), np.stack(given), "into one row")
        columns = torch.zeros(24, size).t()
        dist.all_gather_into_tensor(columns, as_tensor(given[rank], torch.float32))
        check(columns.view(size, 24), np.stack([array.reshape(-1) for array in given]), "into columns")
        many = random_arrays(12, size, (size, LARGE), torch.float32)
        flat = as_tensor(many[rank], torch.float32)
        dist.reduce_scatter_tensor(flat[rank], flat)
        check(flat[rank], sum(many)[rank], "a reduce-scatter in place")
        numbers = random_arrays(13, size, (7,), torch.complex64)
        conjugated = as_tensor(numbers[rank], torch.complex64).conj()
        dist.group.WORLD.broadcast([conjugated]).wait()
        check(conjugated.resolve_conj(), numbers[0].conj(), "a conjugated view")
        with pytest.raises(ValueError, match="share memory"):
            dist.broadcast(torch.zeros(1).expand(3), 0)


def together() -> None:
    """Several tensors as one operation, and objects."""
    with process_group() as (rank, size):
        group = dist.group.WORLD
        tensors = [torch.full((n,), rank + 1.0) for n in (1, 3, 50_000)]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            check(tensor, np.full(tensor.shape, sum(range(1, size + 1))), "coalesced")
        outs = [torch.empty(size, 2), torch.empty(size, 3)]
        ins = [torch.full((2,), float(rank)), torch.full((3,), rank + 10.0)]
        group.allgather_into_tensor_coalesced(outs, ins).wait()
        check(outs[1][:, 0], np.arange(size) + 10, "allgather_into_tensor_coalesced")
        parts = [torch.empty(2), torch.empty(3)]
        options = dist.ReduceScatterOptions()
        group.reduce_scatter_tensor_coalesced(
            parts, [torch.ones(size, 2), torch.ones(size, 3)], options
        ).wait()
        check(parts[1], np.full(3, size), "reduce_scatter_tensor_coalesced")
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
        assert [each["rank"] for each in objects] == list(range(size))
        told = [rank, str(rank)]
        dist.broadcast_object_list(told, src=size - 1)
        assert told == [size - 1, str(size - 1)]
        sparse = torch.sparse_coo_tensor([[rank, 0]], [1.0, 2.0], (size,))
        dist.all_reduce(sparse)
        check(sparse.to_dense(), np.ones(size) + np.eye(size)[0] * 2 * size, "sparse")


def alone() -> None:
    with process_group() as (rank, size):
        own = [dist.new_group([each]) for each in range(size)][rank]
        tensor = torch.full((3,), 2.0)
        dist.all_reduce(tensor, group=own)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(3.0), group=own)
        assert tensor.tolist() == [6.0] * 3
        out = torch.empty(3)
        dist.all_gather_into_tensor(out, tensor, group=own)
        dist.reduce_scatter_tensor(out, out.clone(), group=own)
        dist.all_to_all_single(out, out.clone(), group=own)
        assert out.tolist() == [6.0] * 3
        dist.barrier(group=own)


PROGRAMS = [
    every_reduction,
    factors,
    booleans,
    every_move,
    every_exchange,
    shared_memory,
    every_reduce_scatter,
    unusual_memory,
    together,
    alone,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("np", [2, 4])
def test_equals_numpy(run_ranks: Callable[..., Any], np: int, program: Callable[[], None]) -> None:
    run_ranks(np, program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equals_numpy_in_another_order(
    run_ranks: Callable[..., Any], tmp_path: Path, program: Callable[[], None]
) -> None:
    run_ranks(3, program, env=in_another_order([2, 0, 1], tmp_path))


@pytest.mark.parametrize("program", [every_reduction, every_move], ids=lambda program: program.__name__)
def test_equals_numpy_over_links(run_ranks: Callable[..., Any], program: Callable[[], None]) -> None:
    run_ranks(3, program, env={"HOROVOD_TRANSPORT": "tcp"})
