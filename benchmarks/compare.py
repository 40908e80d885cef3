"""Runs the benchmarks under horovodrun, both libraries interleaved in each, and prints one table.

python benchmarks/compare.py [--np 2] [--rounds 10] [--only allreduce,many,train] [--quick] [--json FILE]
                             [--plot FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from plots import draw
from samples import OURS, Row, table

FOLDER = Path(__file__).resolve().parent
BENCHMARKS = ("allreduce", "many", "train")


def cpu_times() -> tuple[float, float]:
    """(busy, total) seconds of all cores since boot."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) / hertz, sum(ticks) / hertz


def placement(processes: int) -> str:
    """Which cores the ranks get, and whether two of them are threads of one."""
    cores = sorted(os.sched_getaffinity(0))
    used = cores[:processes]
    siblings = []
    for core in used:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        siblings.append(path.read_text(encoding="ascii").strip() if path.exists() else "?")
    shared = "threads of one core" if len(set(siblings)) < len(siblings) else "separate cores"
    crowd = f", {processes} ranks on {len(cores)} cores" if processes > len(cores) else ""
    return f"ranks pinned to cpu {', '.join(map(str, used))} ({shared}{crowd})"


def run(name: str, args: argparse.Namespace, folder: Path) -> list[Row]:
    """One benchmark in processes of its own; its rows, with the share of CPU that others took in its note."""
    report = folder / f"{name}.json"
    horovodrun = Path(sys.executable).with_name("horovodrun")
    command = [str(horovodrun), "-np", str(args.np), sys.executable, str(FOLDER / f"{name}.py")]
    command += ["--rounds", str(args.rounds), "--json", str(report), *(["--quick"] if args.quick else [])]
    busy, total = cpu_times()
    own = os.times()
    print(f"running {name} ...", file=sys.stderr, flush=True)
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
    rows = [Row(**row) for row in json.loads(report.read_text(encoding="utf-8"))]
    spent = os.times()
    mine = spent.children_user - own.children_user + spent.children_system - own.children_system
    others = max(0.0, cpu_times()[0] - busy - mine) / (cpu_times()[1] - total)
    note = f"load {rows[-1].load:.1f}, CPU taken by others {others:.0%}"
    rows[-1].note = "; ".join(filter(None, [rows[-1].note, note]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, default=2, help="processes")
    parser.add_argument("--rounds", type=int, default=10, help="every library runs once in each")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="comma-separated")
    parser.add_argument("--quick", action="store_true", help="correctness only, a few seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table")
    args = parser.parse_args()

    start, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(","):
            rows += run(name, args, Path(folder))
    print(table(rows))
    rounds, spent = len(rows[0].rounds[OURS]), time.monotonic() - start
    print(f"\n{placement(args.np)}; {rounds} interleaved rounds; {spent:.0f} s in all")
    if args.plot:
        draw(rows, args.plot)
        print(f"drawn in {args.plot}")
    if args.json:
        args.json.write_text(json.dumps([row.as_dict() for row in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
