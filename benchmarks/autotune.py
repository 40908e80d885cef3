"""What tuning reaches from the worst start, next to the best of fixed settings.

horovodrun -np 2 python benchmarks/autotune.py

Every round starts the library once with each fixed setting and once with tuning, which begins with every
tensor alone and a window of 50 ms; when it has settled, its steps are measured like those of the others.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from session import pin
from sizes import resnet50

import horovod.torch as hvd

WARMUP_SAMPLES, SEARCH_SAMPLES, CONTEST_SAMPLES = 3, 20, 6
SAMPLES = WARMUP_SAMPLES + SEARCH_SAMPLES + CONTEST_SAMPLES
WORST_START = {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CYCLE_TIME": "50", "HOROVOD_AUTOTUNE": "1"}
STEPS_BETWEEN_LOOKS = 10
TUNED = "tuned"


@dataclass(frozen=True)
class Case:
    """Tensors of one step; `polled`: the program asks whether they are done instead of waiting."""

    name: str
    elements: list[int]
    polled: bool

    @property
    def megabytes(self) -> float:
        return sum(self.elements) * 4 / 1e6


CASES = (
    Case("60 x 4 KiB, polled", [1024] * 60, True),
    Case("60 x 4 KiB, waited for", [1024] * 60, False),
    Case("ResNet-50, 161, waited for", resnet50(), False),
)


def settings() -> dict[str, dict[str, str]]:
    """Thresholds from nothing to everything, windows up to the longest that is used without tuning."""
    fixed = {}
    for threshold in (0, 1 << 20, 8 << 20, 128 << 20):
        for window in ("0.05", "0.15", "0.5"):
            values = {"HOROVOD_FUSION_THRESHOLD": str(threshold), "HOROVOD_CYCLE_TIME": window}
            fixed[f"{threshold >> 20} MiB, {window} ms"] = {**values, "HOROVOD_AUTOTUNE": "0"}
    return fixed


def step(case: Case, tensors: list[torch.Tensor]) -> None:
    handles = [hvd.allreduce_async_(t, name=f"t{n}", op=hvd.Sum) for n, t in enumerate(tensors)]
    while case.polled and not all(hvd.poll(handle) for handle in reversed(handles)):
        os.sched_yield()
    for handle in handles:
        hvd.synchronize(handle)


def settle(run: Callable[[], None]) -> None:
    """Steps until rank 0 has all its samples, as many on every rank."""
    samples = 0
    while samples < SAMPLES:
        for _ in range(STEPS_BETWEEN_LOOKS):
            run()
        samples = hvd.broadcast_object(hvd.counters()["autotune_samples"], root_rank=0, name="samples")


def measure(case: Case, variables: dict[str, str], tuned: bool, seconds: float) -> float:
    """MB a second: the median over the steps of one start of the library."""
    os.environ.update(variables)
    hvd.init()
    tensors = [torch.zeros(count) for count in case.elements]
    for _ in range(STEPS_BETWEEN_LOOKS):
        step(case, tensors)
    if tuned:
        settle(lambda: step(case, tensors))
    begin = time.perf_counter()
    for _ in range(3):
        step(case, tensors)
    estimate = (time.perf_counter() - begin) / 3
    count = hvd.broadcast_object(max(5, int(seconds / estimate)), root_rank=0, name="count")
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step(case, tensors)
        times.append(time.perf_counter() - begin)
    hvd.shutdown()
    return case.megabytes / statistics.median(times)


def report(case: Case, rates: dict[str, list[float]]) -> None:
    """Per setting the median and the share of the best fixed one, round by round."""
    fixed = {name: statistics.median(values) for name, values in rates.items() if name != TUNED}
    best = max(fixed, key=lambda name: fixed[name])
    print(f"{case.name}  (best fixed: {best})")
    for name, values in rates.items():
        shares = [value / other for value, other in zip(values, rates[best], strict=True)]
        spread = f"{min(shares):.0%}-{max(shares):.0%}"
        median, share = statistics.median(values), statistics.median(shares)
        print(f"  {name:18} {median:9.1f} MB/s {share:6.0%}  {spread:>12}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="measured for each setting in a round")
    args = parser.parse_args()
    pin()
    torch.set_num_threads(1)
    choices = {**settings(), TUNED: WORST_START}
    for case in CASES:
        rates: dict[str, list[float]] = {name: [] for name in choices}
        for _ in range(args.rounds):
            for name, variables in choices.items():
                rates[name].append(measure(case, variables, name == TUNED, args.seconds))
        if os.environ.get("HOROVOD_RANK", "0") == "0":
            report(case, rates)


if __name__ == "__main__":
    main()
