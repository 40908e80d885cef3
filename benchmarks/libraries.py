"""Allreduce of float32 on the CPU by horovod itself, by Gloo and by MPI: jobs of each in turn, one table.

python benchmarks/libraries.py [--np 2] [--rounds 3] [--quick]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.bootstrap import libraries

SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
LIBRARIES = ("host", "gloo", "mpi")
BUDGET_SECONDS = 0.4  # for one size in one job
MARK = "measured "


def measure(quick: bool) -> None:
    """As a rank. Rank 0 prints the seconds of a call for each size; a call ends when all ranks have it."""
    hvd.init()
    seconds = []
    for size in SIZES[:3] if quick else SIZES:
        tensor, name = torch.ones(size // 4), f"size {size}"
        estimate = 1.0
        for _ in range(4):
            start = time.perf_counter()
            hvd.allreduce_(tensor, op=hvd.Average, name=name)
            estimate = min(estimate, time.perf_counter() - start)
        calls = int(hvd.broadcast_object(max(3, min(2000, BUDGET_SECONDS / estimate))))
        hvd.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            hvd.allreduce_(tensor, op=hvd.Average, name=name)
        seconds.append((time.perf_counter() - start) / calls)
        assert bool((tensor == 1).all())
    if hvd.rank() == 0:
        print(MARK + json.dumps(seconds), flush=True)
    hvd.shutdown()


def job(library: str, processes: int, quick: bool) -> list[float]:
    """Seconds by size, in processes of its own."""
    horovodrun = [str(Path(sys.executable).with_name("horovodrun")), *(["--mpi"] if library == "mpi" else [])]
    program = [sys.executable, __file__, "--measure", *(["--quick"] if quick else [])]
    environment = {**os.environ, libraries.VARIABLE: library, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*horovodrun, "-np", str(processes), "-H", f"localhost:{processes}", *program],
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = [line.partition(MARK)[2] for line in done.stdout.splitlines() if MARK in line]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"{library}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(lines[0])


def title(size: int) -> str:
    """As people write it."""
    units = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
    return next(f"{size // unit} {name}" for unit, name in units if size >= unit)


def lacking(library: str) -> str:
    """Why horovodrun cannot use it here; empty where it can."""
    if library == "host":
        return ""
    if not libraries.built(library):
        return libraries.how_to_get(library)
    return "" if library != "mpi" or shutil.which("mpirun") else "there is no mpirun on PATH"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, default=2, help="processes")
    parser.add_argument("--rounds", type=int, default=3, help="a job of every library runs in each")
    parser.add_argument("--quick", action="store_true", help="correctness only, a few seconds")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args, _ = parser.parse_known_args()  # make bench has options for the other comparison too
    if args.measure:
        return measure(args.quick)
    present = [library for library in LIBRARIES if not lacking(library)]
    found: dict[str, list[list[float]]] = {library: [] for library in present}
    for _ in range(1 if args.quick else args.rounds):
        for library in present:
            found[library].append(job(library, args.np, args.quick))
    print(f"allreduce, {args.np} ranks, milliseconds a call (median of jobs)")
    print("| tensor | " + " | ".join(present) + " |\n|---" + "|---:" * len(present) + "|")
    for at in range(len(found["host"][0])):
        medians = [statistics.median(times[at] for times in found[library]) * 1e3 for library in present]
        print(f"| {title(SIZES[at])} | " + " | ".join(f"{median:.3g}" for median in medians) + " |")
    for library in filter(lacking, LIBRARIES):
        print(f"{library} is left out: {lacking(library)}")


if __name__ == "__main__":
    main()
