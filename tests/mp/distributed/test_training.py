"""What is written for torch.distributed, on the backend "hvd": DDP, FSDP2, functional collectives, DTensor,
and checkpoints, against the same arithmetic in one process.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from process_groups import process_group
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

STEPS, BATCH = 4, 6


def models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return {
        "MLP": (nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3)), (20,)),
        "CNN": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 3)), (3, 6, 6)),
        "transformer": (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (5, 16)),
    }


def batches(shape: tuple[int, ...], rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(BATCH, *shape, generator=generator) for _ in range(STEPS)]


def trained_alone(model: nn.Module, shape: tuple[int, ...], size: int) -> list[torch.Tensor]:
    """The parameters after steps on what all ranks have together."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        for rank in range(size):
            (model(batches(shape, rank)[step]).square().mean() / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def train(model: nn.Module, shape: tuple[int, ...], rank: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for batch in batches(shape, rank):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def data_parallel(name: str) -> None:
    with process_group() as (rank, size):
        model, shape = models()[name]
        expected = trained_alone(copy.deepcopy(model), shape, size)
        if rank:
            for parameter in model.parameters():
                nn.init.zeros_(parameter)  # rank 0's are what counts
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.002)  # type: ignore[arg-type]
        train(wrapped, shape, rank)
        for found, wanted in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(found.detach(), wanted, rtol=1e-4, atol=1e-5)


def fully_sharded() -> None:
    with process_group() as (rank, size):
        model, shape = models()["transformer"]
        expected = trained_alone(copy.deepcopy(model), shape, size)
        mesh = init_device_mesh("cpu", (size,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model, shape, rank)
        for found, wanted in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(found.full_tensor().detach(), wanted, rtol=1e-4, atol=1e-5)


def functionally(compiled: bool) -> None:
    with process_group() as (rank, size):
        group = dist.group.WORLD

        def compute(given: torch.Tensor) -> torch.Tensor:
            total = functional.all_reduce(given * 2, "sum", group)
            gathered = functional.all_gather_tensor(total + rank, 0, group)
            part = functional.reduce_scatter_tensor(gathered, "avg", 0, group)
            return functional.all_to_all_single(part, None, None, group).square()

        call = torch.compile(compute, backend="aot_eager", fullgraph=True) if compiled else compute
        given = torch.arange(4.0 * size) + rank
        total = 2 * sum(torch.arange(4.0 * size) + other for other in range(size))
        parts = [total + other for other in range(size)]  # the average of equal tensors
        expected = torch.cat([part.chunk(size)[rank] for part in parts])
        torch.testing.assert_close(call(given), expected.square())


def tensors_on_a_mesh(folder: str) -> None:
    with process_group() as (rank, size):
        mesh = init_device_mesh("cpu", (size,))
        whole = torch.arange(4.0 * size * 3).reshape(4 * size, 3)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        torch.testing.assert_close(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
        torch.testing.assert_close((sharded @ sharded.T).full_tensor(), whole @ whole.T)
        other = sharded.redistribute(mesh, [Shard(1)])
        torch.testing.assert_close(other.full_tensor(), whole)
        checkpoint.save({"tensor": sharded}, checkpoint_id=folder)
        loaded = {"tensor": torch.zeros_like(sharded)}
        checkpoint.load(loaded, checkpoint_id=folder)
        torch.testing.assert_close(loaded["tensor"].full_tensor(), whole)
        indices = list(DistributedSampler(range(10), shuffle=False))  # type: ignore[arg-type]
        assert indices[0] == rank


@pytest.mark.parametrize(
    ("np", "name"),
    [
        (2, "MLP"),
        (2, "CNN"),
        (4, "transformer"),
        pytest.param(4, "MLP", marks=pytest.mark.full),
        pytest.param(4, "CNN", marks=pytest.mark.full),
        pytest.param(2, "transformer", marks=pytest.mark.full),
    ],
)
def test_data_parallel(run_ranks: Callable[..., Any], np: int, name: str) -> None:
    run_ranks(np, data_parallel, [name])


@pytest.mark.parametrize("np", [2, 4])
def test_fully_sharded(run_ranks: Callable[..., Any], np: int) -> None:
    run_ranks(np, fully_sharded)


@pytest.mark.parametrize("compiled", [False, True])
def test_functional_collectives(run_ranks: Callable[..., Any], compiled: bool) -> None:
    run_ranks(2, functionally, [compiled])


def test_tensors_on_a_mesh(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(2, tensors_on_a_mesh, [str(tmp_path / "checkpoint")])
