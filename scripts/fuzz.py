"""Runs the fuzz targets of tests/fuzz under libFuzzer, ASan and UBSan, and ends with one table.

python scripts/fuzz.py --runs 10000000 [TARGET ...]

The inputs of earlier runs lie in build/fuzz/inputs. --keep minimises what there is of each target and
writes it to tests/fuzz/corpus/TARGET.hex, an input a line, which the core's tests replay.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/fuzz/corpus"
BUILD = ROOT / "build/fuzz"
SANITIZERS = "address,undefined"
LONGEST = 256  # bytes of an input
KEPT_BYTES = 32 << 10  # of all kept inputs of one target
NAMES = ["clang++", *(f"clang++-{version}" for version in range(25, 11, -1))]
PROBE = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n'
MISSING = """make fuzz needs clang with libFuzzer and its sanitizers; none of {names} links a target here.
On Debian and Ubuntu: apt-get install clang libclang-rt-14-dev (with the number of clang's version).
The inputs that are kept are replayed without clang, by make test-core."""


@dataclass
class Outcome:
    """How one target has ended."""

    target: str
    inputs: int
    features: int
    corpus: int
    speed: int
    result: str


def compiler() -> str | None:
    """A clang that links fuzz targets; None without one."""
    probe = BUILD / "probe.cc"
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.write_text(PROBE)
    for name in NAMES:
        path = shutil.which(name)
        command = [str(path), f"-fsanitize=fuzzer,{SANITIZERS}", str(probe), "-o", str(BUILD / "probe")]
        if path and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    return None


def build(clang: str, targets: list[str]) -> None:
    """Builds the targets; a failure ends the program with the tool's own output."""
    tools = Path(sys.executable).parent
    configure = [str(tools / "cmake"), "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja"]
    options = [
        f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}",
        f"-DCMAKE_CXX_COMPILER={clang}",
        "-DHVD_BUILD_FUZZERS=ON",
    ]
    options += [f"-DHVD_BUILD_{part}=OFF" for part in ("PYTHON", "TENSORFLOW", "MXNET")]
    log = subprocess.run(
        [*configure, *options, f"-DHVD_SANITIZE={SANITIZERS}"], capture_output=True, text=True, check=False
    )
    if log.returncode != 0:
        sys.exit(log.stdout + log.stderr)
    names = [f"fuzz_{target}" for target in targets]
    made = subprocess.run([str(tools / "cmake"), "--build", str(BUILD), "--target", *names], check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)


def program(target: str) -> str:
    """The path of a built target."""
    return str(BUILD / "tests/fuzz" / f"fuzz_{target}")


def inputs_of(target: str) -> Path:
    """The folder of the target's inputs, with those that are kept among them."""
    folder = BUILD / "inputs" / target
    folder.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{target}.hex"
    lines = kept.read_text(encoding="ascii").splitlines() if kept.exists() else []
    for number, line in enumerate(line for line in lines if not line.startswith("#")):
        (folder / f"kept-{number:04}").write_bytes(bytes.fromhex(line))
    return folder


def environment() -> dict[str, str]:
    """More memory than a machine has is refused, as it would be without a sanitizer."""
    options = "allocator_may_return_null=1:max_allocation_size_mb=512"
    options += ":malloc_context_size=4:quarantine_size_mb=32"  # for speed
    return {**os.environ, "ASAN_OPTIONS": options}


def last_number(pattern: str, text: str) -> int:
    """The number in the last match; 0 without one."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def fuzz(target: str, limits: list[str]) -> Outcome:
    """Runs one target; its output goes to build/fuzz/TARGET.log."""
    folder = inputs_of(target)
    found = BUILD / "found"
    found.mkdir(exist_ok=True)
    command = [program(target), *limits, f"-max_len={LONGEST}", "-timeout=10", "-rss_limit_mb=3000"]
    command += [
        "-malloc_limit_mb=1000",
        "-print_final_stats=1",
        f"-artifact_prefix={found / target}-",
        str(folder),
    ]
    log_file = BUILD / f"{target}.log"
    begin = time.monotonic()
    with log_file.open("w", encoding="utf-8") as log:
        status = subprocess.run(command, stderr=log, stdout=log, env=environment(), check=False).returncode
    seconds = time.monotonic() - begin
    text = log_file.read_text(encoding="utf-8", errors="replace")
    inputs = last_number(r"stat::number_of_executed_units:\s+(\d+)", text)
    reproducer = re.findall(r"Test unit written to (\S+)", text)
    result = "nothing found" if status == 0 else f"FOUND {reproducer[-1] if reproducer else log_file}"
    return Outcome(
        target,
        inputs,
        last_number(r" ft: (\d+)", text),
        sum(1 for _ in folder.iterdir()),
        round(inputs / seconds),
        result,
    )


def keep(target: str) -> None:
    """Writes the smallest inputs that reach every edge of the target's code, within KEPT_BYTES."""
    merged = BUILD / "merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    command = [program(target), "-merge=1", "-use_counters=0", f"-max_len={LONGEST}", str(merged)]
    subprocess.run(
        [*command, str(inputs_of(target))], env=environment(), stderr=subprocess.DEVNULL, check=True
    )
    inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))
    lines, room = [], KEPT_BYTES
    for data in inputs:
        room -= len(data)
        if data and room >= 0:
            lines.append(data.hex())
    text = f"# Inputs of the fuzz target '{target}', one a line. Written by: make fuzz KEEP=1\n"
    (KEPT / f"{target}.hex").write_text(text + "".join(f"{line}\n" for line in lines), encoding="ascii")


def table(outcomes: list[Outcome]) -> str:
    """A row a target."""
    rows = [("target", "inputs run", "per second", "corpus", "features", "result")]
    for one in outcomes:
        rows.append(
            (one.target, f"{one.inputs:,}", f"{one.speed:,}", str(one.corpus), str(one.features), one.result)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  "
        + row[0].ljust(widths[0])
        + "".join(f"  {row[c]:>{widths[c]}}" for c in range(1, 5))
        + "  "
        + row[5]
        for row in rows
    )


def main() -> int:
    """1 when a target has found something."""
    known = sorted(path.name.removesuffix("_fuzz.cc") for path in (ROOT / "tests/fuzz").glob("*_fuzz.cc"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", default=known, metavar="TARGET", help=", ".join(known))
    parser.add_argument("--runs", type=int, help="inputs for each target")
    parser.add_argument("--seconds", type=int, help="seconds for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--keep", action="store_true", help="rewrite the inputs in tests/fuzz/corpus")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    clang = compiler()
    if clang is None:
        sys.exit(MISSING.format(names=", ".join(NAMES[:1] + NAMES[-1:])))
    build(clang, arguments.targets)
    limits = [f"-runs={arguments.runs}"] if arguments.runs is not None else []
    if arguments.seconds:
        limits.append(f"-max_total_time={arguments.seconds}")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(lambda target: fuzz(target, limits), arguments.targets))
        if arguments.keep:
            list(pool.map(keep, arguments.targets))
    print(table(outcomes))
    return int(any(one.result.startswith("FOUND") for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
