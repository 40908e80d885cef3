"""torch.distributed on the backend "hvd" and on gloo: collectives, DDP and FSDP2.

horovodrun -np 2 python benchmarks/process_groups.py
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from allreduce import HOT_BELOW, ROUND_BUDGET_S, title
from gloo import gloo_group
from models import Task, task
from samples import OURS, Row, interleave, load
from session import Session, session
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from train import STEPS_PER_ROUND, WARM_STEPS, optimizer_of, stepper

import horovod.torch.distributed  # noqa: F401  (registers the backend)

PEER = "gloo"
SIZES = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
QUICK_SIZES = [4, 1 << 20]

Groups = dict[str, dist.ProcessGroup]
Call = Callable[[dist.ProcessGroup, torch.Tensor, torch.Tensor], None]


@contextmanager
def both_groups(folder: Path, rank: int, size: int) -> Iterator[None]:
    """The default group is gloo's; ``groups`` adds ours."""
    with gloo_group(folder, rank, size):
        yield


def all_reduce(group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor) -> None:
    dist.all_reduce(tensor, group=group)


def all_gather(group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor) -> None:
    dist.all_gather_single(whole, tensor, group=group)


def reduce_scatter(group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor) -> None:
    dist.reduce_scatter_single(tensor, whole, group=group)


def broadcast(group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor) -> None:
    dist.broadcast(tensor, 0, group=group)


def exchange(group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor) -> None:
    """Each rank sends to the next."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    received = whole[: tensor.numel()]
    batch = [
        dist.P2POp(dist.irecv, received, (rank - 1) % size, group),
        dist.P2POp(dist.isend, tensor, (rank + 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


CALLS: dict[str, Call] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "broadcast": broadcast,
    "batch_isend_irecv": exchange,
}


def check(run: Session, call: Call, groups: Groups, elements: int) -> None:
    """Small integers: both libraries have the same results exactly."""
    results = []
    for group in groups.values():
        tensor = (torch.arange(elements) % 5 + run.rank).float()
        whole = (torch.arange(elements * run.size) % 7 + run.rank).float()
        call(group, tensor, whole)
        results.append(torch.cat([tensor, whole]))
    if not torch.equal(*results):
        raise AssertionError(f"{call.__name__} of {elements} elements differs on rank {run.rank}")


def sampler(
    run: Session, call: Call, group: dist.ProcessGroup, tensor: torch.Tensor, whole: torch.Tensor
) -> Callable[[], list[float]]:
    """One round of one library: as many samples as the budget holds, at least two."""

    def timed(calls: int) -> float:
        run.board.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call(group, tensor, whole)
        return run.board.max((time.perf_counter() - start) / calls)

    hot = tensor.numel() * 4 < HOT_BELOW
    for _ in range(3):
        estimate = timed(20 if hot else 1)
    calls = int(run.board.decide(max(1.0, min(500.0, 1e-2 / estimate)))) if hot else 1
    count = int(run.board.decide(max(2.0, min(40.0, ROUND_BUDGET_S / (estimate * calls)))))
    return lambda: [timed(calls) for _ in range(2 if run.quick else count)]


def measure_collectives(run: Session, groups: Groups) -> None:
    for name, call in CALLS.items():
        for size in QUICK_SIZES if run.quick else SIZES:
            check(run, call, groups, size // 4)
            tensor, whole = torch.zeros(size // 4), torch.zeros(size // 4 * run.size)
            samplers = {
                library: sampler(run, call, group, tensor, whole) for library, group in groups.items()
            }
            run.rows.append(Row(name, title(size), run.size, interleave(samplers, run.rounds), load()))


def data_parallel(run: Session, job: Task, group: dist.ProcessGroup) -> tuple[nn.Module, Callable[[], float]]:
    model = job.make()
    wrapped = nn.parallel.DistributedDataParallel(model, process_group=group)
    return model, stepper(run, job, wrapped, optimizer_of(model))


def fully_sharded(run: Session, job: Task, group: dist.ProcessGroup) -> tuple[nn.Module, Callable[[], float]]:
    model = job.make()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, stepper(run, job, model, torch.optim.AdamW(model.parameters(), lr=1e-4))


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter.detach()


def measure_training(run: Session, groups: Groups, name: str, kind: str) -> None:
    torch.manual_seed(100 + run.rank)  # every rank has its own batch
    job = task(name, run.quick)
    wrap = data_parallel if kind == "ddp" else fully_sharded
    models, steps = [], {}
    for library, group in groups.items():
        torch.manual_seed(1)
        model, steps[library] = wrap(run, job, group)
        models.append(model)
    count = 1 if run.quick else STEPS_PER_ROUND[name]
    for step in steps.values():
        for _ in range(WARM_STEPS):
            step()
    samplers = {
        library: (lambda step=step: [step() for _ in range(count)]) for library, step in steps.items()
    }
    times = interleave(samplers, run.rounds)
    for mine, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(whole(mine), whole(other), rtol=1e-3, atol=1e-4)
    run.rows.append(Row(kind, name, run.size, times, load()))


def measure_new_groups(run: Session, groups: Groups) -> None:
    """Groups last as long as the job: so they come after all else, and once."""
    count = 10 if run.quick else 1000
    times: dict[str, list[list[float]]] = {}
    for library in groups:
        run.board.barrier()
        start = time.perf_counter()
        for _ in range(count):
            dist.new_group(backend="hvd" if library == OURS else library)
        times[library] = [[run.board.max(time.perf_counter() - start)]]
    run.rows.append(Row("new_group", f"{count} groups", run.size, times, load()))


def main() -> None:
    with session(__doc__.splitlines()[0], both_groups) as run:
        groups = {OURS: dist.new_group(backend="hvd"), PEER: dist.group.WORLD}
        measure_collectives(run, groups)
        for name in ["mlp"] if run.quick else STEPS_PER_ROUND:
            measure_training(run, groups, name, "ddp")
        if not run.quick:
            measure_training(run, groups, "transformer", "fsdp2")
        measure_new_groups(run, groups)


if __name__ == "__main__":
    main()
