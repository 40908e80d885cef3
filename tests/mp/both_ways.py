"""A model trained by all ranks together, and by one process with all the data."""

import torch
from torch import nn

import horovod.torch as hvd

STEPS = 50
BASES = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batches(count=STEPS, size=24):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.randn(size, 16, generator=generator), torch.randint(4, (size,), generator=generator)


def train(net, optimizer, rank, size):
    """Trains on this rank's share of every batch."""
    for inputs, labels in batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs[rank::size]), labels[rank::size])
        loss.backward()
        optimizer.step()


def flat(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def train_both_ways(name):
    """The parameters after training together, and their greatest distance from those of training alone."""
    together, alone = mlp(), mlp()
    if hvd.rank() == 1:
        with torch.no_grad():
            for parameter in together.parameters():
                parameter.zero_()
    optimizer = BASES[name](together.parameters())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=together.named_parameters())
    hvd.broadcast_parameters(together.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    train(together, optimizer, hvd.rank(), hvd.size())
    train(alone, BASES[name](alone.parameters()), 0, 1)
    distance = (flat(together) - flat(alone)).abs().max().item()
    moved = (flat(together) - flat(mlp())).abs().max().item()
    return {"bits": flat(together).numpy().tobytes().hex(), "distance": distance, "moved": moved}
