"""Two tasks train one trunk: it learns from all ranks, each head from the ranks of its task.

horovodrun -np 2 python examples/torch_multi_task.py

Ranks 0, 2, 4, ... have data for the first task, the others for the second, and the ranks may have different
amounts: a rank that has run out calls ``hvd.join()``, and the others go on.
"""

import sys
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

import horovod.torch as hvd

FEATURES, WIDTH, BATCH = 10, 24, 16
HEADS = {"class": 4, "amount": 1}
Batch = tuple[torch.Tensor, torch.Tensor]


def task_of(rank: int) -> str:
    return list(HEADS)[rank % len(HEADS)]


def make_data(rank: int) -> list[Batch]:
    """The batches of a rank: fewer, the higher the rank."""
    generator = torch.Generator().manual_seed(rank)
    batches = [torch.randn(BATCH, FEATURES, generator=generator) for _ in range(24 - 5 * (rank % 4))]
    if task_of(rank) == "class":
        return [(inputs, inputs[:, :4].argmax(dim=1)) for inputs in batches]
    return [(inputs, inputs[:, :4].sum(dim=1, keepdim=True)) for inputs in batches]


def make_model() -> nn.ModuleDict:
    torch.manual_seed(1)  # the same on every rank
    heads = {name: nn.Linear(WIDTH, outputs) for name, outputs in HEADS.items()}
    return nn.ModuleDict({"trunk": nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh()), **heads})


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def loss_of(model: nn.ModuleDict, task: str, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    outputs = model[task](model["trunk"](inputs))
    return F.cross_entropy(outputs, targets) if task == "class" else F.mse_loss(outputs, targets)


def train(model: nn.ModuleDict, task: str, task_set: hvd.ProcessSet, data: list[Batch]) -> tuple[float, int]:
    """Trains until every rank has run out of data; returns this rank's last loss and the last rank."""
    trunk = hvd.DistributedOptimizer(sgd(model["trunk"]))  # over all ranks
    head = hvd.DistributedOptimizer(sgd(model[task]), process_set=task_set)
    for batch in data:
        trunk.zero_grad()
        head.zero_grad()
        loss = loss_of(model, task, batch)
        loss.backward()
        trunk.step()
        head.step()
    return loss.item(), hvd.join()  # until all have joined, this rank takes part with gradients of zero


def share(model: nn.ModuleDict, last: int, task_set: hvd.ProcessSet, steps: int) -> None:
    """A rank that joined early has missed the last steps: it takes the result of one that made them all."""
    hvd.broadcast_parameters(model["trunk"].state_dict(), root_rank=last)
    made = hvd.allgather_object(steps, process_set=task_set)
    most = task_set.ranks[made.index(max(made))]
    task = task_of(hvd.rank())
    hvd.broadcast_parameters(model[task].state_dict(), root_rank=most, process_set=task_set)


def train_alone(model: nn.ModuleDict, sets: Sequence[hvd.ProcessSet]) -> None:
    """The same computation in one process, with the data of all ranks."""
    data = [make_data(rank) for rank in range(hvd.size())]
    optimizer = sgd(model)
    for step in range(max(len(batches) for batches in data)):
        optimizer.zero_grad()
        for rank, batches in enumerate(data):
            if step < len(batches):  # averages divide by all ranks, also by those that have joined
                (loss_of(model, task_of(rank), batches[step]) / hvd.size()).backward()
        for index, task in enumerate(HEADS):
            for parameter in model[task].parameters():
                if parameter.grad is not None:
                    parameter.grad *= hvd.size() / sets[index].size()
        optimizer.step()


def main() -> int:
    hvd.init(process_sets="dynamic")
    if hvd.size() < len(HEADS):
        sys.exit(f"needs a process per task: horovodrun -np {len(HEADS)} python {sys.argv[0]}")
    sets = [hvd.add_process_set(range(first, hvd.size(), len(HEADS))) for first in range(len(HEADS))]
    task, task_set = task_of(hvd.rank()), sets[hvd.rank() % len(HEADS)]
    data = make_data(hvd.rank())
    model, whole = make_model(), make_model()
    loss, last = train(model, task, task_set, data)
    share(model, last, task_set, len(data))

    train_alone(whole, sets)
    same = all(
        torch.allclose(a, b, atol=1e-4)
        for part in ("trunk", task)
        for a, b in zip(model[part].parameters(), whole[part].parameters(), strict=True)
    )
    reports = hvd.allgather_object((same, f"rank {hvd.rank()} {task}: {len(data)} steps, loss {loss:.3f}"))
    same = all(equal for equal, _ in reports)
    if hvd.rank() == 0:
        print(*(line for _, line in reports), sep="\n")
        print(f"rank {last} joined last; parameters {'equal to' if same else 'DIFFERENT from'} one process's")
    hvd.shutdown()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
