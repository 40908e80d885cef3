"""Simulates jobs of many seeds with the engine's own negotiation in virtual time, and ends with one table.

python scripts/simulate.py --seeds 1000000 --ranks 16
python scripts/simulate.py --seed 42        one seed, described
python scripts/simulate.py --faults         breaks the protocol, a line at a time: each must be noticed
python scripts/simulate.py --scale 8 10000  what negotiation costs so many ranks
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/core-tests"
BROKEN = ROOT / "build/sim-faults"
FAULTS = ROOT / "tests/core/sim/faults.yaml"
CHUNK = 5000  # seeds that one process simulates
SUMMARY = re.compile(r"(\d+) (steps|collectives|gates|schedules left|events)")


def build(source: Path, folder: Path) -> Path:
    """The program, built; a failure ends this one with the tool's own output."""
    tools = Path(sys.executable).parent
    configure = [str(tools / "cmake"), "-S", str(source), "-B", str(folder), "-G", "Ninja"]
    options = [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DHVD_BUILD_TESTS=ON", "-DHVD_BUILD_PYTHON=OFF"]
    make = [str(tools / "cmake"), "--build", str(folder), "--target", "simulate"]
    for command in ([*configure, *options], make):
        log = subprocess.run(command, capture_output=True, text=True, check=False)
        if log.returncode != 0:
            sys.exit(log.stdout + log.stderr)
    return folder / "tests/core/simulate"


def chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + seeds, CHUNK):
        yield start, min(CHUNK, first + seeds - start)


def simulate(program: Path, first: int, seeds: int, ranks: int) -> tuple[Counter[str], list[str]]:
    """What the seeds came to, and a line for each that breaks a rule. A crash is told with its first seed."""
    command = [str(program), "--first", str(first), "--seeds", str(seeds), "--ranks", str(ranks)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    *violations, summary = result.stdout.splitlines() or [""]
    if result.returncode not in (0, 1):
        violations.append(
            f"of seeds {first} to {first + seeds - 1} one ends the program: {result.returncode}"
        )
    return Counter({name: int(count) for count, name in SUMMARY.findall(summary)}), violations


def run(program: Path, arguments: argparse.Namespace) -> int:
    """Many seeds, on all cores; 1 when some rule was broken."""
    total: Counter[str] = Counter()
    broken: list[str] = []
    done, begin = 0, time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        parts = {
            pool.submit(simulate, program, first, seeds, arguments.ranks): seeds
            for first, seeds in chunks(arguments.first, arguments.seeds)
        }
        for part in as_completed(parts):
            counts, violations = part.result()
            total += counts
            broken += violations
            done += parts[part]
            seconds = time.monotonic() - begin
            print(f"\r{done:,} of {arguments.seeds:,} seeds, {seconds:.0f} s", end="", flush=True)
    print()
    for name in ("steps", "collectives", "gates", "schedules left", "events"):
        print(f"  {name:16}{total[name]:>18,}")
    print(f"  {'rules broken':16}{len(broken):>18,}")
    print("\n".join(broken[:20]))
    return 1 if broken else 0


PHASES = {"cold": "first", "cached": "by ids", "learned": "learned", "departs": "departing"}


def scale_rows(program: Path, size: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What negotiation costs so many ranks, on each network."""
    what = "--first-step" if arguments.first_step else "--scale"
    command = [str(program), what, str(size), "--tensors", str(arguments.tensors)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def show_scale(program: Path, arguments: argparse.Namespace) -> int:
    """A row for each number of ranks and network."""
    if not arguments.json:
        phases = list(PHASES.values())[: 1 if arguments.first_step else None]
        print(f"steps of {arguments.tensors} tensors, 8 ranks a host; microseconds of virtual time")
        titles = "".join(f"{phase:>10}" for phase in phases)
        print(f"{'ranks':>8}  {'network':12}{titles}" + ("" if arguments.first_step else f"{'links':>8}"))
    for size in arguments.scale:
        for row in scale_rows(program, size, arguments):
            print(json.dumps(row) if arguments.json else scale_line(row), flush=True)
    return 0


def scale_line(row: dict[str, Any]) -> str:
    times = "".join(f"{row[phase]['micros']:10,.0f}" for phase in PHASES if phase in row)
    links = f"{row['most_peers']:8}" if "most_peers" in row else ""
    return f"{row['ranks']:8,}  {row['network']:12}{times}{links}"


def copy_sources(target: Path) -> None:
    for name in (
        "CMakeLists.txt",
        "cmake",
        "core",
        "frameworks",
        "tests/core",
        "tests/fake_gpu",
        "tests/fuzz",
    ):
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("*.so", "*.py", "__pycache__")
            shutil.copytree(source, target / name, dirs_exist_ok=True, ignore=ignored)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def noticed(program: Path, arguments: argparse.Namespace) -> str:
    """The first rule that some seed breaks; empty when none does."""
    for first, seeds in chunks(arguments.first, arguments.seeds):
        _, violations = simulate(program, first, seeds, arguments.ranks)
        if violations:
            return violations[0]
    return ""


def run_faults(arguments: argparse.Namespace) -> int:
    """Breaks a line at a time; 1 when nothing notices."""
    source = BROKEN / "source"
    shutil.rmtree(BROKEN, ignore_errors=True)  # it may hold what was made of a broken line
    copy_sources(source)
    missed = 0
    for fault in yaml.safe_load(FAULTS.read_text(encoding="utf-8")):
        file = source / fault["file"]
        text = file.read_text(encoding="utf-8")
        if text.count(fault["line"]) != 1:
            sys.exit(f"{fault['file']} does not have this line once: {fault['line']}")
        file.write_text(text.replace(fault["line"], fault["instead"]), encoding="utf-8")
        rule = noticed(build(source, BROKEN / "build"), arguments)
        missed += not rule
        print(f"{'noticed' if rule else 'MISSED':8} {fault['what']}\n         {rule[:150]}", flush=True)
        shutil.copy2(ROOT / fault["file"], file)
        file.touch()  # or the next build would keep what was made of the broken line
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--ranks", type=int, default=16, help="at most, in one job")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--scale", type=int, nargs="+", metavar="RANKS", help="sizes of jobs to measure")
    parser.add_argument(
        "--first-step", action="store_true", help="with --scale, that step alone: it takes less memory"
    )
    parser.add_argument("--tensors", type=int, default=200, help="of a step, with --scale")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row of --scale")
    parser.add_argument("--faults", action="store_true", help="break the protocol on purpose")
    arguments = parser.parse_args()
    if arguments.faults:
        return run_faults(arguments)
    program = build(ROOT, BUILD)
    if arguments.scale:
        return show_scale(program, arguments)
    if arguments.seed is not None:
        command = [str(program), "--seed", str(arguments.seed), "--ranks", str(arguments.ranks)]
        return subprocess.run(command, check=False).returncode
    return run(program, arguments)


if __name__ == "__main__":
    sys.exit(main())
