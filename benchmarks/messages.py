"""send and recv of one float32 tensor between ranks 0 and 1, there and back; half of that is shown.

horovodrun -np 2 python benchmarks/messages.py
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from allreduce import QUICK_SIZES, SIZES, title
from gloo import gloo_group
from samples import OURS, Row, interleave, load
from session import Session, session

import horovod.torch as hvd

ROUND_BUDGET_S = 0.15
HOT_BELOW = 4096  # smaller messages: many a sample, because a clock cannot time one


class Library(NamedTuple):
    """How one sends to, and receives from, the other of the two ranks."""

    send: Callable[[torch.Tensor, int], object]
    recv: Callable[[torch.Tensor, int], object]


LIBRARIES = {OURS: Library(hvd.send, hvd.recv), "torch gloo": Library(dist.send, dist.recv)}


def there_and_back(run: Session, library: Library, tensor: torch.Tensor) -> None:
    if run.rank == 0:
        library.send(tensor, 1)
        library.recv(tensor, 1)
    elif run.rank == 1:
        library.recv(tensor, 0)
        library.send(tensor, 0)


def check(run: Session, library: Library, elements: int) -> None:
    """Every element."""
    expected = (torch.arange(elements) % 251).float()
    tensor = expected.clone() if run.rank == 0 else torch.zeros(elements)
    there_and_back(run, library, tensor)
    if run.rank < 2 and not tensor.equal(expected):
        raise AssertionError(f"a wrong message of {elements} elements on rank {run.rank}")


def timed(run: Session, library: Library, tensor: torch.Tensor, calls: int) -> float:
    """Seconds that a message takes."""
    tensor.zero_()
    run.board.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        there_and_back(run, library, tensor)
    return run.board.max((time.perf_counter() - start) / calls / 2)


def sampler(run: Session, library: Library, tensor: torch.Tensor) -> Callable[[], list[float]]:
    """One round of this library: as many samples as the budget holds, at least two."""
    hot = tensor.numel() * 4 < HOT_BELOW
    for _ in range(3):
        estimate = timed(run, library, tensor, 20 if hot else 1)
    calls = int(run.board.decide(max(1.0, min(500.0, 1e-3 / estimate)))) if hot else 1
    count = int(run.board.decide(max(2.0, min(40.0, ROUND_BUDGET_S / (estimate * calls)))))
    return lambda: [timed(run, library, tensor, calls) for _ in range(2 if run.quick else count)]


def main() -> None:
    with session(__doc__.splitlines()[0], gloo_group) as run:
        for size in QUICK_SIZES if run.quick else SIZES:
            tensor = torch.zeros(size // 4)
            for library in LIBRARIES.values():
                check(run, library, size // 4)
            samplers = {name: sampler(run, library, tensor) for name, library in LIBRARIES.items()}
            times = interleave(samplers, run.rounds)
            run.rows.append(Row("send and recv", title(size), run.size, times, load()))


if __name__ == "__main__":
    main()
