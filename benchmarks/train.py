"""A training step: DistributedOptimizer, DistributedDataParallel over gloo, and no communication at all.

horovodrun -np 2 python benchmarks/train.py

"alone" steps the same models at the same time without exchanging gradients: the ceiling.
"""

import time
import zlib
from collections.abc import Callable

import torch
from gloo import gloo_group
from models import Task, task
from samples import OURS, Row, interleave, load
from session import Session, session
from torch import nn

import horovod.torch as hvd

STEPS_PER_ROUND = {"mlp": 8, "cnn": 3, "transformer": 2}
WARM_STEPS = 3


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def stepper(
    run: Session, job: Task, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[], float]:
    """One step; seconds on the slowest rank."""

    def step() -> float:
        run.board.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        job.loss(model(job.inputs)).backward()
        optimizer.step()
        return run.board.max(time.perf_counter() - start)

    return step


def horovod(run: Session, job: Task, model: nn.Module) -> Callable[[], float]:
    optimizer = optimizer_of(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    wrapped = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    return stepper(run, job, model, wrapped)


def ddp(run: Session, job: Task, model: nn.Module) -> Callable[[], float]:
    # No broadcast of batch-norm buffers: the other side does not send them either.
    wrapped = nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False)
    return stepper(run, job, wrapped, optimizer_of(model))


def alone(run: Session, job: Task, model: nn.Module) -> Callable[[], float]:
    return stepper(run, job, model, optimizer_of(model))


def check(run: Session, ours: nn.Module, theirs: nn.Module) -> None:
    """After the same steps: the same bits on every rank, and the parameters of the peer."""
    parameters = [parameter.detach() for parameter in ours.parameters()]
    digest = 0
    for parameter in parameters:
        digest = zlib.crc32(parameter.numpy().tobytes(), digest)
    if run.board.max(digest) != -run.board.max(-digest):
        raise AssertionError("horovod: parameters differ between ranks")
    for mine, other in zip(parameters, theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-2, atol=1e-3)


MAKERS = {OURS: horovod, "ddp gloo": ddp, "alone": alone}


def measure(run: Session, name: str) -> None:
    torch.manual_seed(100 + run.rank)  # every rank has its own batch
    job = task(name, run.quick)
    models, steps = {}, {}
    for library, make_step in MAKERS.items():
        torch.manual_seed(1)
        models[library] = job.make()
        steps[library] = make_step(run, job, models[library])
    count = 1 if run.quick else STEPS_PER_ROUND[name]
    for step in steps.values():
        for _ in range(WARM_STEPS):
            step()
    samplers = {
        library: (lambda step=step: [step() for _ in range(count)]) for library, step in steps.items()
    }
    times = interleave(samplers, run.rounds)
    check(run, models[OURS], models["ddp gloo"])
    row = Row("train", name, run.size, times, load())
    rates = [f"{library} {len(job.inputs) * run.size / row.median(library):.0f}" for library in times]
    row.note = "samples/s: " + ", ".join(rates)
    run.rows.append(row)


def main() -> None:
    with session(__doc__.splitlines()[0], gloo_group) as run:
        for name in ["mlp"] if run.quick else STEPS_PER_ROUND:
            measure(run, name)


if __name__ == "__main__":
    main()
