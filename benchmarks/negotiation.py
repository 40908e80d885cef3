"""What negotiation costs in the steady state, with a learned schedule and without, in turns.

Latency, messages, wake-ups, and the processor time of a job that waits.

horovodrun -np 2 python benchmarks/negotiation.py
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from samples import seconds
from session import pin

import horovod.torch as hvd

SETTING = "HOROVOD_LEARNED_SCHEDULE"
WAYS = {"scheduled": "1", "negotiated": "0"}
TENSORS = 161  # as ResNet-50 has
WARM_UP = 20  # steps, in which a schedule is learned
COMPUTES = 0.01  # seconds


def step(tensors: list[torch.Tensor]) -> None:
    handles = [hvd.allreduce_async_(t, name=f"gradient.{n}", op=hvd.Max) for n, t in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)


def compute_first(tensors: list[torch.Tensor]) -> None:
    """Rank 0 computes while the others wait for it."""
    end = time.perf_counter() + (COMPUTES if hvd.rank() == 0 else 0)
    while time.perf_counter() < end:
        pass
    step(tensors)


def measure(work: Callable[[], None], steps: int) -> dict[str, float]:
    """Of a step: the median time, and the counters of this rank."""
    for _ in range(WARM_UP):
        work()
    hvd.barrier()
    times = []
    before = hvd.counters()
    for _ in range(steps):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    after = hvd.counters()
    counted = {
        name: (after[name] - before[name]) / steps for name in ("control_messages", "gates", "wakeups")
    }
    return {"seconds": statistics.median(times), **counted}


def idle(length: float) -> dict[str, float]:
    """The part of one core that a rank takes while nothing happens."""
    time.sleep(0.2)
    start = time.process_time()
    time.sleep(length)
    return {"processor": (time.process_time() - start) / length}


def measure_all(steps: int, rest: float) -> dict[str, dict[str, float]]:
    """Every case, in a job of its own."""
    hvd.init()
    one = [torch.ones(1)]
    many = [torch.ones(100 + number) for number in range(TENSORS)]
    results = {
        "one tensor of 4 bytes": measure(lambda: step(one), steps * 10),
        f"{TENSORS} tensors": measure(lambda: step(many), steps),
        f"{TENSORS} tensors, rank 0 computes": measure(lambda: compute_first(many), max(steps // 4, 1)),
        "idle": idle(rest),
    }
    hvd.shutdown()
    return results


def line(case: str, way: str, found: dict[str, float]) -> str:
    if "processor" in found:
        return f"{case:34} {way:10} {found['processor']:8.3%} of a core"
    counters = "".join(f"{found[name]:10.2f}" for name in ("control_messages", "gates", "wakeups"))
    return f"{case:34} {way:10} {seconds(found['seconds']):>9} {counters}"


def report(results: dict[str, list[dict[str, dict[str, float]]]]) -> None:
    print(f"{'of a step, rank 0':34} {'way':10} {'median':>9}   messages     gates  wake-ups")
    for case in results["scheduled"][0]:
        for way, rounds in results.items():
            found = [each[case] for each in rounds]
            print(
                line(case, way, {name: statistics.median(each[name] for each in found) for name in found[0]})
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="each way runs once in each")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rest", type=float, default=2.0, help="seconds for which the job is idle")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results of rank 0")
    args = parser.parse_args()
    pin()
    results: dict[str, list[dict[str, dict[str, float]]]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, setting in WAYS.items():
            os.environ[SETTING] = setting
            results[way].append(measure_all(args.steps, args.rest))
    if int(os.environ.get("HOROVOD_RANK", "0")) == 0:
        report(results)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
