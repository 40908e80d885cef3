"""Runs the benchmarks under horovodrun, both libraries interleaved in each, and prints one table.

python benchmarks/compare.py [--np 2] [--rounds 3 | --full] [--only allreduce,many,train] [--quick]
                             [--json FILE] [--plot FILE]
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
from samples import OURS, Row, disturbance, table, taken_by_others

FOLDER = Path(__file__).resolve().parent
BENCHMARKS = ("allreduce", "many", "train")
ROUNDS, ROUNDS_IN_FULL = 3, 10  # three take about a minute


def cores_of(processes: int) -> list[int]:
    """Those that the ranks are pinned to."""
    return sorted(os.sched_getaffinity(0))[:processes]


def busy_seconds(cores: list[int]) -> float:
    """What programs, and other machines on the same processor, have taken of these cores since boot.

    Interrupts are left out: those of gloo's messages count for no process. So are cores without a line, as
    some containers number them anew.
    """
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    fields = {words[0]: words[1:] for line in lines if (words := line.split())}
    ticks = [
        int(fields[f"cpu{core}"][kind]) for core in cores if f"cpu{core}" in fields for kind in (0, 1, 2, 7)
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """What children that have ended took of any core."""
    times = os.times()
    return times.children_user + times.children_system


def placement(processes: int) -> str:
    """Which cores the ranks get, and whether two of them are threads of one."""
    cores, used = os.sched_getaffinity(0), cores_of(processes)
    siblings = []
    for core in used:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        siblings.append(path.read_text(encoding="ascii").strip() if path.exists() else "?")
    shared = "threads of one core" if len(set(siblings)) < len(siblings) else "separate cores"
    crowd = f", {processes} ranks on {len(cores)} cores" if processes > len(cores) else ""
    return f"ranks pinned to cpu {', '.join(map(str, used))} ({shared}{crowd})"


def run(name: str, args: argparse.Namespace, folder: Path) -> tuple[list[Row], float]:
    """One benchmark in processes of its own: its rows, and the share of the ranks' cores that others took."""
    report = folder / f"{name}.json"
    horovodrun = Path(sys.executable).with_name("horovodrun")
    command = [str(horovodrun), "-np", str(args.np), sys.executable, str(FOLDER / f"{name}.py")]
    command += ["--rounds", str(args.rounds), "--json", str(report), *(["--quick"] if args.quick else [])]
    cores, start = cores_of(args.np), time.monotonic()
    busy, own = busy_seconds(cores), own_seconds()
    print(f"running {name} ...", file=sys.stderr, flush=True)
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
    capacity = len(cores) * (time.monotonic() - start)
    others = taken_by_others(busy_seconds(cores) - busy, own_seconds() - own, capacity)
    rows = [Row(**row) for row in json.loads(report.read_text(encoding="utf-8"))]
    note = f"load {rows[-1].load:.1f}, CPU taken by others {others:.0%}"
    rows[-1].note = "; ".join(filter(None, [rows[-1].note, note]))
    return rows, others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, default=2, help="processes")
    parser.add_argument("--rounds", type=int, help=f"every library runs once in each (default {ROUNDS})")
    parser.add_argument(
        "--full", action="store_true", help=f"{ROUNDS_IN_FULL} rounds, unless --rounds is given"
    )
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="comma-separated")
    parser.add_argument("--quick", action="store_true", help="correctness only, a few seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table")
    args = parser.parse_args()

    args.rounds = args.rounds or (ROUNDS_IN_FULL if args.full else ROUNDS)

    start, rows, shares = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(","):
            measured, others = run(name, args, Path(folder))
            rows += measured
            shares.append(others)
    disturbed = disturbance(shares)
    print(table(rows, compare=not disturbed))
    if disturbed:
        print(f"\n{disturbed}", end="")
    rounds, spent = len(rows[0].rounds[OURS]), time.monotonic() - start
    print(f"\n{placement(args.np)}; {rounds} interleaved rounds; {spent:.0f} s in all")
    if args.plot and draw(rows, args.plot, compare=not disturbed):
        print(f"drawn in {args.plot}")
    if args.json:
        args.json.write_text(json.dumps([row.as_dict() for row in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
