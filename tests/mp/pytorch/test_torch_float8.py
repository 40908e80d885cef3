"""Floats of 8 bits, of which there are so few that ranks reduce all of them, against torch's arithmetic."""

from functools import reduce

import pytest
import torch
from matrix import TRANSPORTS

import horovod.torch as hvd

TYPES = [torch.float8_e4m3fn, torch.float8_e5m2]
LARGEST = 448.0  # of float8_e4m3fn
OPS = {
    "Sum": lambda stack: reduce(torch.add, stack),
    "Average": lambda stack: reduce(torch.add, stack) * (1.0 / len(stack)),
    "Product": lambda stack: reduce(torch.mul, stack),
    "Min": lambda stack: torch.stack(stack).amin(0),
    "Max": lambda stack: torch.stack(stack).amax(0),
}


def every_value(dtype: torch.dtype) -> torch.Tensor:
    """By their bits; NaN and infinity are among them."""
    return torch.arange(256).to(torch.uint8).view(dtype)


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Older versions of torch make NaN of what float8_e4m3fn does not hold."""
    return (values.clamp(-LARGEST, LARGEST) if dtype == torch.float8_e4m3fn else values).to(dtype)


def check(got: torch.Tensor, expected: torch.Tensor, doing: str) -> None:
    """Equal, and NaN where NaN is wanted. A zero is as good as -0: a ring has an order of its own."""
    assert got.dtype == expected.dtype and got.shape == expected.shape, doing
    found, wanted = got.float(), expected.float()
    alike = (found == wanted) | (found.isnan() & wanted.isnan())
    assert alike.all(), f"{doing}: {found[~alike][:4]} and not {wanted[~alike][:4]}"


def inputs(dtype: torch.dtype, ranks: int) -> list[torch.Tensor]:
    """Of two ranks all pairs; of more every value with others at random."""
    values = every_value(dtype)
    if ranks == 2:
        return [values.view(torch.uint8).repeat(256).view(dtype), rows_of_each(values)]
    generator = torch.Generator().manual_seed(ranks)
    return [
        values.view(torch.uint8)[torch.randperm(256, generator=generator)].view(dtype) for _ in range(ranks)
    ]


def rows_of_each(values: torch.Tensor) -> torch.Tensor:
    """Each value 256 times."""
    return values.view(torch.uint8).repeat_interleave(256).view(values.dtype)


def reduced_everywhere() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        given = inputs(dtype, size)
        for name, combine in OPS.items():
            expected, doing = rounded(combine([each.float() for each in given]), dtype), f"{name} of {dtype}"
            check(hvd.allreduce(given[rank], op=getattr(hvd, name)), expected, doing)
            mine = given[rank].clone()
            assert hvd.grouped_allreduce_([mine], op=getattr(hvd, name))[0] is mine
            check(mine, expected, f"{doing}, in place")
            rows = len(expected) // size * size
            part = hvd.reducescatter(given[rank][:rows], op=getattr(hvd, name))
            check(part, expected[:rows].view(torch.uint8).view(size, -1)[rank].view(dtype), f"part, {doing}")


def moved_everywhere() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        values = every_value(dtype).view(torch.uint8)
        shifted = [values.roll(other).view(dtype) for other in range(size)]
        bits = [each.view(torch.uint8) for each in shifted]
        gathered = hvd.allgather(shifted[rank][: rank + 1])
        check(gathered, torch.cat([each[: other + 1] for other, each in enumerate(bits)]).view(dtype), "all")
        check(hvd.allgather(shifted[rank][:0]), shifted[0][:0], "none")
        check(hvd.broadcast(shifted[rank], size - 1), shifted[-1], "root")
        received, _ = hvd.alltoall(shifted[rank], splits=[rank + 1] * size)
        parts = [each[rank * (o + 1) : (rank + 1) * (o + 1)] for o, each in enumerate(bits)]
        check(received, torch.cat(parts).view(dtype), "alltoall")
        strided = values.view(16, 16).view(dtype).t()
        check(hvd.broadcast(strided, 0), strided.contiguous(), "not contiguous")


def kept_of_one_that_joined() -> None:
    """What a rank brings that has joined changes nothing, the largest numbers and infinity neither."""
    hvd.init()
    ranks_left = hvd.size() - 1
    for dtype in TYPES:
        values = every_value(dtype)
        wide = values.float()
        results = {"Min": values, "Max": values, "Sum": rounded(wide * ranks_left + 0.0, dtype)}
        results["Product"] = rounded(wide**ranks_left, dtype)
        for name, expected in results.items() if hvd.rank() > 0 else ():
            check(hvd.allreduce(values, op=getattr(hvd, name)), expected, f"{name} of {dtype}")
        hvd.join()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("program", [reduced_everywhere, moved_everywhere, kept_of_one_that_joined])
def test_floats_of_eight_bits(run_ranks, program, ranks: int, transport: str) -> None:
    run_ranks(ranks, program, env={"HOROVOD_TRANSPORT": transport})


def differentiated() -> list[float]:
    hvd.init()
    leaf = torch.tensor([1.0, -2.0]).to(torch.float8_e5m2).requires_grad_()
    rows = torch.ones(2).to(torch.float8_e5m2).requires_grad_()
    hvd.allreduce(leaf, op=hvd.Sum).float().sum().backward()
    hvd.reducescatter(rows, op=hvd.Sum).float().sum().backward()
    return [*leaf.grad.float().tolist(), *rows.grad.float().tolist()]


def test_gradients_of_floats_of_eight_bits(run_ranks) -> None:
    assert run_ranks(2, differentiated) == [[2.0] * 4] * 2
