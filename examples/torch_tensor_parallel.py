"""A layer too wide for one process, split over the ranks of a process set; data-parallel over the others.

Four processes as 2 x 2:     horovodrun -np 4 python examples/torch_tensor_parallel.py
Two, one layer over both:    horovodrun -np 2 python examples/torch_tensor_parallel.py

Every rank trains on its own samples, and holds a shard of the wide layer: a band of columns of the first
matrix, and the same band of rows of the second. The ranks of a *tensor set* together hold the whole layer;
those of a *data set* hold the same shard. With four ranks the tensor sets are 0 1 and 2 3, the data sets
0 2 and 1 3.
"""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

import horovod.torch as hvd

FEATURES, WIDTH, HIDDEN, CLASSES = 12, 16, 64, 4


class WideLayer(nn.Module):
    """The whole layer: widens, bends, narrows."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(WIDTH, HIDDEN)
        self.narrow = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.narrow(torch.tanh(self.widen(inputs)))


class TensorParallelLayer(WideLayer):
    """This rank's shard of ``whole``. Takes and gives this rank's samples, as many on every rank."""

    def __init__(self, whole: WideLayer, tensor_set: hvd.ProcessSet) -> None:
        super().__init__()
        self.tensor_set = tensor_set
        parts, mine = tensor_set.size(), tensor_set.rank()
        self.widen.weight = nn.Parameter(whole.widen.weight.detach().chunk(parts)[mine].clone())
        self.widen.bias = nn.Parameter(whole.widen.bias.detach().chunk(parts)[mine].clone())
        self.narrow.weight = nn.Parameter(whole.narrow.weight.detach().chunk(parts, dim=1)[mine].clone())
        # One factor of the set's size is part of the gradient of reducescatter(Sum) (docs/collectives.md);
        # the other averages the losses of the set's ranks, whose samples all meet here.
        for parameter in self.parameters():
            parameter.register_hook(lambda gradient: gradient / parts**2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        samples = hvd.allgather(inputs, process_set=self.tensor_set)  # of all ranks of the set
        partial = super().forward(samples)  # what this shard adds to their results
        return hvd.reducescatter(partial, op=hvd.Sum, process_set=self.tensor_set)  # of this rank's samples


def make_set(families: list[list[int]]) -> hvd.ProcessSet:
    """Registers the sets, which all ranks do together; returns the one that this rank is part of."""
    everybody = list(range(hvd.size()))
    sets = [hvd.global_process_set if f == everybody else hvd.add_process_set(f) for f in families]
    return next(process_set for process_set in sets if process_set.included())


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.2, momentum=0.9)


def distributed(model: nn.Sequential, data_set: hvd.ProcessSet) -> list[torch.optim.Optimizer]:
    """What every rank has is averaged over all ranks, a shard over the ranks that have the same one."""
    common = hvd.DistributedOptimizer(sgd(model[0], model[2]))
    shard = hvd.DistributedOptimizer(sgd(model[1]), process_set=data_set)
    return [common, shard]


def step(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


def main() -> int:
    hvd.init(process_sets="dynamic")
    size, width = hvd.size(), 1 if hvd.size() % 2 else 2
    tensor_set = make_set([list(range(first, first + width)) for first in range(0, size, width)])
    data_set = make_set([list(range(first, size, width)) for first in range(width)])

    torch.manual_seed(1)  # the same numbers everywhere, of which each rank takes its part
    inputs, labels = torch.randn(16 * size, FEATURES), torch.randint(CLASSES, (16 * size,))
    my_inputs, my_labels = inputs.chunk(size)[hvd.rank()], labels.chunk(size)[hvd.rank()]
    whole = nn.Sequential(nn.Linear(FEATURES, WIDTH), WideLayer(), nn.Linear(WIDTH, CLASSES))
    model = copy.deepcopy(whole)
    model[1] = TensorParallelLayer(whole[1], tensor_set)
    optimizers, alone = distributed(model, data_set), [sgd(whole)]
    for _ in range(20):
        loss = step(model, optimizers, my_inputs, my_labels)
        step(whole, alone, inputs, labels)  # to compare with: one process, all samples, the whole layer

    whole[1] = TensorParallelLayer(whole[1], tensor_set)
    pairs = zip(model.parameters(), whole.parameters(), strict=True)
    error = hvd.allreduce(max((a - b).abs().max() for a, b in pairs).detach(), op=hvd.Max).item()
    loss = hvd.allreduce(loss).item()
    if hvd.rank() == 0:
        verdict = "equal to" if error < 1e-4 else "DIFFERENT from"
        print(f"{size // width} x {width} processes, loss {loss:.4f}, parameters {verdict} one process's")
    hvd.shutdown()
    return 0 if error < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
