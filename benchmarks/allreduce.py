"""Blocking allreduce of one float32 tensor, 4 bytes to 256 MiB.

horovodrun -np 2 python benchmarks/allreduce.py
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from gloo import gloo_group
from samples import OURS, Row, interleave, load
from session import Session, session

import horovod.torch as hvd

SIZES = [4, 64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
QUICK_SIZES = [4, 1 << 10, 1 << 20]
HOT_BELOW = 4096  # Smaller buffers: many calls a sample, because a clock cannot time one.
ROUND_BUDGET_S = 0.15


def horovod(tensor: torch.Tensor) -> None:
    hvd.allreduce_(tensor, name=f"allreduce.{tensor.numel()}", op=hvd.Sum)


def gloo(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)


def check(run: Session, call: Callable[[torch.Tensor], None], elements: int) -> None:
    """Every element, exactly: small integers have one sum in float32."""
    pattern = torch.arange(elements) % 5 + 1
    tensor = (pattern * (run.rank + 1)).float()
    call(tensor)
    expected = (pattern * (run.size * (run.size + 1) // 2)).float()
    if not torch.equal(tensor, expected):
        raise AssertionError(f"wrong sum of {elements} elements on rank {run.rank}")


def timed(run: Session, call: Callable[[torch.Tensor], None], tensor: torch.Tensor, calls: int) -> float:
    """Seconds a call on the slowest rank; the buffer is written before, as a training step does."""
    tensor.zero_()
    run.board.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call(tensor)
    return run.board.max((time.perf_counter() - start) / calls)


def sampler(
    run: Session, call: Callable[[torch.Tensor], None], tensor: torch.Tensor
) -> Callable[[], list[float]]:
    """One round of this library: as many samples as the budget holds, at least two."""
    hot = tensor.numel() * 4 < HOT_BELOW
    for _ in range(3):
        estimate = timed(run, call, tensor, 20 if hot else 1)
    calls = int(run.board.decide(max(1.0, min(500.0, 1e-3 / estimate)))) if hot else 1
    count = int(run.board.decide(max(2.0, min(40.0, ROUND_BUDGET_S / (estimate * calls)))))
    return lambda: [timed(run, call, tensor, calls) for _ in range(2 if run.quick else count)]


def title(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


def main() -> None:
    with session(__doc__.splitlines()[0], gloo_group) as run:
        for size in QUICK_SIZES if run.quick else SIZES:
            tensor = torch.zeros(size // 4)
            libraries = {OURS: horovod, "torch gloo": gloo}
            for call in libraries.values():
                check(run, call, size // 4)
            samplers = {name: sampler(run, call, tensor) for name, call in libraries.items()}
            times = interleave(samplers, run.rounds)
            run.rows.append(Row("allreduce", title(size), run.size, times, load()))


if __name__ == "__main__":
    main()
