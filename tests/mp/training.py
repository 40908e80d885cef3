"""Small models trained by several ranks, and by one process with the data of all of them."""

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

TOKENS, WIDTH, CLASSES = 20, 8, 4


def generator(seed):
    return torch.Generator().manual_seed(seed)


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES))


class Tagger(nn.Module):
    """Two embeddings with sparse gradients before a dense layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(TOKENS, WIDTH, sparse=True)
        self.places = nn.Embedding(TOKENS, WIDTH, sparse=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens, use_places=True):
        features = self.words(tokens)
        return self.head(features + self.places(tokens) if use_places else features)


def samples(seed, ranks, tokens=False):
    """For each rank its inputs and labels; the ranks' batches are equally large."""
    shape = (ranks, 6)
    inputs = torch.randint(TOKENS, shape, generator=generator(seed))
    if not tokens:
        inputs = torch.randn(*shape, WIDTH, generator=generator(seed))
    return list(zip(inputs, torch.randint(CLASSES, shape, generator=generator(seed + 1)), strict=True))


def own_samples(seed=0):
    """This rank's inputs and labels."""
    return samples(seed, hvd.size())[hvd.rank()]


def loss_of(net, batch):
    return functional.cross_entropy(net(batch[0]), batch[1])


def mean_loss(net, batches, loss=loss_of):
    """What one process with the data of all ranks minimises."""
    return sum(loss(net, batch) for batch in batches) / len(batches)


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.5, **options)


def wrap(net, base=sgd, **options):
    options.setdefault("named_parameters", net.named_parameters())
    return hvd.DistributedOptimizer(base(net), **options)


def same(net, reference, tolerance=1e-6, process_set=hvd.global_process_set):
    """Equal bits on all ranks, and near the reference."""
    mine = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    theirs = torch.cat([parameter.detach().flatten() for parameter in reference.parameters()])
    assert len(set(hvd.allgather_object(mine.numpy().tobytes(), process_set=process_set))) == 1
    assert (mine - theirs).abs().max() < tolerance, (mine - theirs).abs().max()


def train(net, optimizer, reference, alone, steps=4, tokens=False, loss=loss_of, tolerance=1e-6):
    """``net`` on this rank's batches, ``reference`` on those of all."""
    for step in range(steps):
        batches = samples(10 * step, hvd.size(), tokens)
        optimizer.zero_grad()
        loss(net, batches[hvd.rank()]).backward()
        optimizer.step()
        alone.zero_grad()
        mean_loss(reference, batches, loss).backward()
        alone.step()
    same(net, reference, tolerance)
