"""torch.compile around DistributedDataParallel: torch calls the process group between the graphs, and Dynamo
leaves it alone.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from process_groups import process_group
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.slow  # torch.compile takes most of the time

STEPS = 4


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 3))


def losses(
    call: Callable[[torch.Tensor], torch.Tensor], parameters: list[nn.Parameter], rank: int
) -> list[float]:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    told = []
    for _ in range(STEPS):
        loss = call(torch.randn(6, 20, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    return told


def compiled(optimize: bool | str, with_hook: bool) -> None:
    """The same losses as without a compiler, in several buckets."""
    with process_group() as (rank, size):
        torch._dynamo.config.optimize_ddp = optimize

        def wrapped(inner: nn.Module) -> DistributedDataParallel:
            made = DistributedDataParallel(inner, bucket_cap_mb=1)
            if with_hook:
                made.register_comm_hook(None, default_hooks.allreduce_hook)
            return made

        plain = model()
        other = copy.deepcopy(plain)
        expected = losses(wrapped(other), list(other.parameters()), rank)
        found = losses(torch.compile(wrapped(plain), backend="aot_eager"), list(plain.parameters()), rank)
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))
        for one, another in zip(plain.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, another)
        everybody = [torch.empty(3) for _ in range(size)]
        dist.all_gather(everybody, plain[-1].bias.detach())
        assert all(torch.equal(each, everybody[0]) for each in everybody)


def groups_in_graphs() -> None:
    with process_group():
        group = dist.new_group()

        def compute(given: torch.Tensor) -> torch.Tensor:
            total = given * dist.get_world_size() + dist.get_rank(group) + group.size()
            dist.all_reduce(total, group=group)
            return total * 2

        expected = compute(torch.ones(3))
        assert torch.equal(
            torch.compile(compute, backend="aot_eager", fullgraph=True)(torch.ones(3)), expected
        )


@pytest.mark.parametrize("optimize", [True, False, "python_reducer"])
def test_compiled_data_parallel(run_ranks: Callable[..., Any], optimize: bool | str) -> None:
    run_ranks(2, compiled, [optimize, False])


def test_compiled_data_parallel_with_a_hook(run_ranks: Callable[..., Any]) -> None:
    run_ranks(2, compiled, [True, True])


def test_groups_in_graphs(run_ranks: Callable[..., Any]) -> None:
    run_ranks(2, groups_in_graphs)
