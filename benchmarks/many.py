"""One step's worth of gradients at once: 1,000 small tensors, and those of ResNet-50.

horovodrun -np 2 python benchmarks/many.py
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from gloo import gloo_group
from samples import OURS, Row, interleave, load
from session import Session, session
from sizes import resnet50

import horovod.torch as hvd

BUCKET_BYTES = 25 << 20  # what DistributedDataParallel uses
ROUND_BUDGET_S = 0.4

Step = Callable[[list[torch.Tensor]], None]


def horovod_async(tensors: list[torch.Tensor]) -> None:
    names = (f"many.{len(tensors)}.{number}" for number in range(len(tensors)))
    handles = [hvd.allreduce_async_(t, name=name, op=hvd.Sum) for t, name in zip(tensors, names, strict=True)]
    for handle in handles:
        hvd.synchronize(handle)


def horovod_grouped(tensors: list[torch.Tensor]) -> None:
    hvd.grouped_allreduce_(tensors, name=f"group.{len(tensors)}", op=hvd.Sum)


def gloo_async(tensors: list[torch.Tensor]) -> None:
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def gloo_buckets(tensors: list[torch.Tensor]) -> None:
    """Flattened into buckets, reduced, copied back: the way of DistributedDataParallel."""
    for bucket in buckets(tensors):
        flat = torch.cat([tensor.view(-1) for tensor in bucket])
        dist.all_reduce(flat)
        for tensor, part in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
            tensor.view(-1).copy_(part)


def buckets(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    found: list[list[torch.Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if filled >= BUCKET_BYTES:
            found.append([])
            filled = 0
        found[-1].append(tensor)
        filled += tensor.numel() * tensor.element_size()
    return found


def check(run: Session, step: Step, tensors: list[torch.Tensor]) -> None:
    for number, tensor in enumerate(tensors):
        tensor.fill_((run.rank + 1) * (number % 7 + 1))
    step(tensors)
    total = run.size * (run.size + 1) // 2
    wrong = [n for n, tensor in enumerate(tensors) if not bool((tensor == total * (n % 7 + 1)).all())]
    if wrong:
        raise AssertionError(f"wrong sum of tensors {wrong[:5]} on rank {run.rank}")


def timed(run: Session, step: Step, tensors: list[torch.Tensor]) -> float:
    for tensor in tensors:
        tensor.zero_()
    run.board.barrier()
    start = time.perf_counter()
    step(tensors)
    return run.board.max(time.perf_counter() - start)


def sampler(run: Session, step: Step, tensors: list[torch.Tensor]) -> Callable[[], list[float]]:
    check(run, step, tensors)
    estimate = min(timed(run, step, tensors) for _ in range(2))
    count = int(run.board.decide(max(1.0, min(20.0, ROUND_BUDGET_S / estimate))))
    return lambda: [timed(run, step, tensors) for _ in range(1 if run.quick else count)]


def measure(run: Session, case: str, sizes: list[int], libraries: dict[str, Step]) -> None:
    tensors = [torch.zeros(size) for size in sizes]
    samplers = {name: sampler(run, step, tensors) for name, step in libraries.items()}
    run.rows.append(Row("many", case, run.size, interleave(samplers, run.rounds), load()))


def main() -> None:
    ours: dict[str, Step] = {OURS: horovod_async, "horovod grouped": horovod_grouped}
    with session(__doc__.splitlines()[0], gloo_group) as run:
        small = [256] * (50 if run.quick else 1000)
        measure(
            run,
            f"{len(small)} x 1 KiB",
            small,
            {**ours, "gloo buckets": gloo_buckets, "gloo async": gloo_async},
        )
        if not run.quick:
            measure(run, "ResNet-50, 161, 102 MB", resnet50(), {**ours, "gloo buckets": gloo_buckets})


if __name__ == "__main__":
    main()
