"""What a commit of elastic training costs: a model of 100 MB, beside a plain deep copy and no copy at all.

horovodrun -np 2 python benchmarks/commit.py
"""

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from samples import load, seconds
from session import pin
from torch import nn

import horovod.torch as hvd
from horovod.elastic.checkpoint.durability import kept
from horovod.elastic.checkpoint.options import Options

STEP = 0.5  # seconds that a step is taken to last, of which a commit may take
LIMIT = 0.05
WIDTH, LAYERS, BATCH = 1024, 25, 32  # 105 MB of parameters


@dataclass
class Times:
    """Of the steps of one way, in seconds: its own call, what of it the processor worked, and the backward
    pass that follows it.
    """

    call: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


class Training:
    """A model, and the steps that it makes."""

    def __init__(self) -> None:
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.optimizer = hvd.DistributedOptimizer(optimizer, self.model.named_parameters())
        self.state = hvd.elastic.TorchState(self.model, self.optimizer, step=0)
        self.input = torch.randn(BATCH, WIDTH)

    def step(self, times: Times | None, keep: Callable[[], object]) -> None:
        """``keep`` is what is measured, then the backward pass of the next batch."""
        hvd.barrier()
        begin, work = time.perf_counter(), time.thread_time()
        keep()
        kept_at, worked = time.perf_counter(), time.thread_time()
        loss = self.model(self.input).pow(2).mean()
        self.optimizer.zero_grad()
        before = time.perf_counter()
        loss.backward()
        after = time.perf_counter()
        self.optimizer.step()
        if times is not None:
            times.call.append(kept_at - begin)
            times.work.append(worked - work)
            times.backward.append(after - before)

    def deep_copy(self) -> None:
        self.copied = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    @contextmanager
    def written(self) -> Iterator[None]:
        """Meanwhile a thread writes commits to a folder, one after another: far more often than in need."""
        with tempfile.TemporaryDirectory(prefix="commit-") as own:
            with kept(self.state, Options(hvd.broadcast_object(own), commits=1)):
                self.state.sync()
                yield
            hvd.barrier()


def measure(training: Training, rounds: int, steps: int) -> dict[str, Times]:
    """In turns, so that whatever else the machine does meets all alike."""
    found = {name: Times() for name in ("nothing", "deep copy", "commit", "commit, being written")}
    training.state.sync()
    for number in range(-1, rounds):  # the first warms up
        for name, times in found.items():
            chosen = times if number >= 0 else None
            if name == "commit, being written":
                continue
            keep = {"nothing": lambda: None, "deep copy": training.deep_copy}.get(name, training.state.commit)
            for _ in range(steps):
                training.step(chosen, keep)
    with training.written():
        for number in range(-2, rounds * steps):
            training.step(found["commit, being written"] if number >= 0 else None, training.state.commit)
    return found


def report(found: dict[str, Times]) -> bool:
    """Prints the table; returns whether a commit is cheap enough. Minima: what others do only adds."""
    heads = " ".join(f"{head:>9}" for head in ("work", "min", "median", "worst"))
    print(f"{'each step':24} {heads} {'of a step':>10} {'backward':>10} {'x':>6}")
    plain = min(found["nothing"].backward)
    for name, times in found.items():
        fastest, backward = min(times.call), min(times.backward)
        shown = (statistics.median(times.work), fastest, statistics.median(times.call), max(times.call))
        columns = " ".join(f"{seconds(value):>9}" for value in shown)
        share = f"{fastest / STEP:10.2%} {seconds(backward):>10} {backward / plain:6.2f}"
        print(f"{name:24} {columns} {share}")
    share = min(found["commit"].call) / STEP
    print(f"a step of {STEP:g} s; a commit takes {share:.2%} of it (limit {LIMIT:.0%}); load {load():.1f}")
    return share <= LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of each kind in a round")
    args = parser.parse_args()
    pin()
    torch.set_num_threads(1)
    hvd.init()
    found = measure(Training(), args.rounds, args.steps)
    is_cheap = report(found) if hvd.rank() == 0 else True
    hvd.shutdown()
    if not is_cheap:
        raise SystemExit("a commit costs more than the limit")


if __name__ == "__main__":
    main()
