"""What writing a timeline costs: nanoseconds per event, events per step, their product beside the step.

horovodrun -np 2 python benchmarks/timeline.py
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from samples import seconds
from session import pin
from sizes import resnet50

import horovod.torch as hvd

LIMIT = 0.01  # of a step


def step(tensors: list[torch.Tensor]) -> None:
    """The gradients of one training step, as an optimizer submits them."""
    handles = [hvd.allreduce_async_(t, name=f"gradient.{n}", op=hvd.Sum) for n, t in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)


def timed(tensors: list[torch.Tensor], steps: int) -> list[float]:
    times = []
    for _ in range(steps):
        hvd.barrier()
        start = time.perf_counter()
        step(tensors)
        times.append(time.perf_counter() - start)
    return times


def compare(tensors: list[torch.Tensor], rounds: int, steps: int) -> tuple[list[float], list[float], float]:
    """Times of a step without and with a timeline, in turns, and the events that a step records."""
    without: list[float] = []
    with_timeline: list[float] = []
    events = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        for _ in range(rounds):
            without += timed(tensors, steps)
            hvd.start_timeline(str(path), mark_cycles=True)
            with_timeline += timed(tensors, steps)
            hvd.stop_timeline()
            if hvd.rank() == 0:
                # A phase's end and the next one's begin are recorded as one; the last end is one more.
                events += len(re.findall(r'"ph":"[Bi]"|"NEGOTIATE_', path.read_text()))
    return without, with_timeline, events / (rounds * steps)


def recording() -> float | None:
    """Seconds per event on the recording thread, from the core's own test where that has been built."""
    for program in Path(__file__).resolve().parents[1].glob("build/core-tests/**/test_trace_timeline"):
        output = subprocess.run([program], capture_output=True, text=True, check=False).stdout
        found = re.search(r"recording: (\d+) ns", output)
        if found:
            return int(found[1]) * 1e-9
    return None


def report(case: str, without: list[float], with_timeline: list[float], events: float) -> float:
    """Prints one line; returns the seconds that an event adds to a step. Minima: what others do only adds."""
    plain, traced = min(without), min(with_timeline)
    added = (traced - plain) / events
    text = f"{case:24} {seconds(plain):>9} {seconds(traced):>9} {events:8.0f} {added * 1e9:9.0f} ns"
    print(f"{text} {(traced - plain) / plain:9.2%}", flush=True)
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10, help="of each kind in a round")
    args = parser.parse_args()
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    pin()
    torch.set_num_threads(1)
    hvd.init()
    small = [torch.zeros(1) for _ in range(161)]
    large = [torch.zeros(size) for size in resnet50()]
    for tensors in (small, large):
        timed(tensors, 3)
    of_small = compare(small, args.rounds, args.steps)
    of_large = compare(large, args.rounds, args.steps)
    if hvd.rank() == 0:
        head = f"{'step':24} {'without':>9} {'with':>9} {'events':>8} {'per event':>12} {'share':>9}"
        print(head)
        difference = report("161 x 4 bytes", *of_small)
        report("ResNet-50, 161, 102 MB", *of_large)
        measured = recording()
        each = measured if measured is not None else max(difference, 0.0)
        source = "the core's test" if measured is not None else "the difference of the small steps"
        plain, events = min(of_large[0]), of_large[2]
        share = each * events / plain
        print(f"{each * 1e9:.0f} ns per event ({source}) x {events:.0f} events = {seconds(each * events)},")
        print(f"{share:.3%} of the exchange of ResNet-50's gradients alone (limit {LIMIT:.0%} of a step)")
        if share > LIMIT:
            raise SystemExit("recording costs more than the limit")
    hvd.shutdown()


if __name__ == "__main__":
    main()
