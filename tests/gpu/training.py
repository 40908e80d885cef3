"""A convolutional network on GPUs with the DistributedOptimizer, against one process with the whole batch."""

import torch
from rank import begin, say
from torch import nn

import horovod.torch as hvd

STEPS = 10
BATCH = 8  # of each rank


def model_of(seed: int) -> nn.Module:
    """Small, and without what differs between a batch and its parts."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 24 * 24, 10)
    ).double()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, count: int) -> None:
    """On the samples from ``first`` on of each step's batch."""
    device = next(model.parameters()).device
    for step in range(STEPS):
        random = torch.Generator().manual_seed(step)
        images = torch.rand(BATCH * hvd.size(), 1, 28, 28, dtype=torch.float64, generator=random)
        labels = torch.randint(10, (BATCH * hvd.size(),), generator=random)
        part = slice(first, first + count)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[part].to(device)), labels[part].to(device))
        loss.backward()
        optimizer.step()


def main() -> None:
    """Trains both and compares."""
    device = begin()
    model = model_of(hvd.rank()).to(device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    distributed = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(model, distributed, hvd.rank() * BATCH, BATCH)
    whole = model_of(0).to(device)
    train(whole, torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9), 0, BATCH * hvd.size())
    for mine, reference in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-6, atol=1e-8)
    say("ok training: as one process with the whole batch")


if __name__ == "__main__":
    main()
