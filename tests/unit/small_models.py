"""Small models and optimizers for the tests of DistributedOptimizer."""

import torch
from torch import nn

import horovod.torch as hvd


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def wrapped(net, base=torch.optim.SGD, lr=0.1, inner=None, **options):
    options.setdefault("named_parameters", net.named_parameters())
    return hvd.DistributedOptimizer(base(net.parameters(), lr=lr, **(inner or {})), **options)


def backward(net, scale=1.0):
    torch.manual_seed(1)
    (net(torch.randn(5, 3)).pow(2).sum() * scale).backward()


def names_of(core):
    return [request.name for request in core.requests]
