"""One elastic job of four ranks and a spare with a random fault every 20 seconds, for as long as you say.

    python tests/faults/elastic_soak.py [--seconds S] [--every S] [--seed N] [--faults KIND,...] [--json]

It trains the digits net again and again. What must never happen is counted, and the status is 1 when anything
was: hangs, ranks that differ, a lower accuracy than without faults, whatever is left behind or grows.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))

from launch import Launcher
from load import within

PROGRAM = Path(__file__).parent / "programs" / "elastic_digits.py"
RANKS = 4
BEGINS = re.compile(r"begins as rank (\d+) of (\d+) pid (\d+) at ([\d.]+)")
STEP = re.compile(r"step (\d+) of (\d+) at ([\d.]+)")
ACCURACY = re.compile(r"accuracy ([\d.]+)")
KILLED = re.compile(r"^horovodrun: .* was killed by SIGKILL")
GIVEN_UP = re.compile(r"^horovodrun: .* is ended: .*(does not respond|a signal has stopped it)")
HANG = 30.0  # seconds without a step, on an idle machine
FAULTS = ("kill", "kill", "kill", "kill two", "pause", "freeze", "preempt", "kill spare", "shrink", "grow")


@dataclass
class Sample:
    """What the job used at a moment."""

    when: float
    launcher: tuple[int, int, int]  # bytes, descriptors, mappings
    workers: dict[int, tuple[int, int, int]]
    processes: int


@dataclass
class Job:
    """The job under test: its output as it comes, and what is seen from outside."""

    seconds: float
    folder: Path
    lines: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)  # processes: "killed", "frozen"

    def __post_init__(self) -> None:
        self.launcher = Launcher()
        self.hosts = self.folder / "hosts"
        self.hosts.write_text(f"localhost:{RANKS}\n")
        script = self.folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {self.hosts}\n")
        script.chmod(0o700)
        options = ("-np", str(RANKS), "--min-np", "1", "--max-np", "5", "--spares", "1")
        training = (sys.executable, str(PROGRAM), str(time.monotonic() + self.seconds))
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        self.process = self.launcher.start(
            *options,
            "--host-discovery-script",
            str(script),
            *training,
            OMP_NUM_THREADS="1",
            TMPDIR=str(self.temporary),
        )
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Iterator[bytes]) -> None:
        for line in stream:
            self.lines.append(line.decode(errors="replace").rstrip())

    def newest(self) -> dict[int, int]:
        """Process ids by rank, of those that live."""
        found: dict[int, int] = {}
        size = 0
        for match in filter(None, map(BEGINS.search, list(self.lines))):
            found = {rank: pid for rank, pid in found.items() if pid != int(match[3])}
            found[int(match[1])], size = int(match[3]), int(match[2])
        return {rank: pid for rank, pid in found.items() if rank < size and _lives(pid)}

    def spares(self) -> list[int]:
        """Workers that have no rank yet."""
        ranks = set(self.newest().values())
        trains = [each for each in self._workers() if each.pid not in ranks]
        return [each.pid for each in trains]

    def _workers(self) -> list[psutil.Process]:
        found = []
        for pid in self.launcher.survivors():
            try:
                process = psutil.Process(pid)
                if PROGRAM.name in " ".join(process.cmdline()[1:2]):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def latest_step(self) -> float:
        """When the latest step was told of."""
        steps = [match for match in map(STEP.search, list(self.lines)) if match]
        return float(steps[-1][3]) if steps else 0.0

    def look(self) -> None:
        """Takes a sample."""
        own = _usage(self.process.pid)
        workers = {each.pid: usage for each in self._workers() if (usage := _usage(each.pid))}
        if own and self.process.poll() is None:
            self.samples.append(Sample(time.monotonic(), own, workers, len(self.launcher.survivors())))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _usage(pid: int) -> tuple[int, int, int] | None:
    try:
        process = psutil.Process(pid)
        mappings = len(Path(f"/proc/{pid}/maps").read_text().splitlines())
        return process.memory_info().rss, process.num_fds(), mappings
    except (psutil.Error, OSError):
        return None


def bring(job: Job, fault: str, dice: random.Random) -> str:
    """One fault; says what was done."""
    ranks = job.newest()
    if len(ranks) < 3:  # after a preemption, this host gets no new process for a minute
        return "nothing: too few ranks"
    victims = dice.sample(sorted(ranks), 2)
    if fault in ("shrink", "grow"):
        slots = RANKS - 1 if fault == "shrink" else RANKS + 1
        job.hosts.write_text(f"localhost:{slots}\n")
        threading.Timer(8.0, job.hosts.write_text, (f"localhost:{RANKS}\n",)).start()
        return f"{slots} slots for 8 s"
    if fault == "kill spare":
        spares = job.spares()
        for pid in spares[:1]:
            psutil.Process(pid).kill()
            job.struck["killed"] += 1
        return "kill -9 of a spare" if spares else "nothing: no spare"
    chosen = victims if fault == "kill two" else victims[:1]
    number = {"preempt": signal.SIGTERM, "pause": signal.SIGSTOP, "freeze": signal.SIGSTOP}
    for rank in chosen:
        psutil.Process(ranks[rank]).send_signal(number.get(fault, signal.SIGKILL))
        job.struck["killed"] += fault not in number
        job.struck["frozen"] += fault == "freeze"
    if fault == "pause":
        time.sleep(2.0)
        psutil.Process(ranks[chosen[0]]).send_signal(signal.SIGCONT)
    return f"{fault} of rank {' and '.join(map(str, chosen))}"


def recovery(job: Job, since: float) -> float | None:
    """Seconds from the fault until a step was told of that was made after all ranks had begun again."""
    begun = [float(m[4]) for m in map(BEGINS.search, list(job.lines)) if m and float(m[4]) > since]
    if not begun:
        return None
    after = [float(m[3]) for m in map(STEP.search, list(job.lines)) if m and float(m[3]) > begun[0]]
    return after[0] - since if after else None


def slope(samples: list[tuple[float, int]]) -> float:
    """Growth for each hour, by least squares; of less than two minutes none is told."""
    if len(samples) < 2 or samples[-1][0] - samples[0][0] < 120:
        return 0.0
    return statistics.linear_regression(*zip(*samples, strict=True)).slope * 3600


def growth(job: Job) -> dict[str, float]:
    """Of the launcher, and of the worker that lived longest, in the later half of each: before, they fill
    what is bounded. While there are as many workers as usual: each has links to the others.
    """
    lives = Counter(pid for sample in job.samples for pid in sample.workers)
    oldest = lives.most_common(1)[0][0]
    usual = Counter(len(sample.workers) for sample in job.samples).most_common(1)[0][0]
    samples = [sample for sample in job.samples if len(sample.workers) == usual]
    found = {}
    for index, name in enumerate(("bytes", "descriptors", "mappings")):
        of_launcher = [(each.when, each.launcher[index]) for each in samples]
        of_worker = [(each.when, each.workers[oldest][index]) for each in samples if oldest in each.workers]
        found[f"launcher: {name} an hour"] = slope(of_launcher[len(of_launcher) // 2 :])
        found[f"oldest worker: {name} an hour"] = slope(of_worker[len(of_worker) // 2 :])
    oldest_seen = [each.when for each in job.samples if oldest in each.workers]
    found["oldest worker: minutes"] = (oldest_seen[-1] - oldest_seen[0]) / 60
    return found


def misnamed(job: Job) -> int:
    """How many processes more or fewer were named as killed, or given up, than were. One that was given up
    is killed then, which may be told, too.
    """
    killed = sum(bool(KILLED.search(line)) for line in job.lines)
    given_up = sum(bool(GIVEN_UP.search(line)) for line in job.lines)
    fewest, frozen = job.struck["killed"], job.struck["frozen"]
    return abs(killed - min(max(killed, fewest), fewest + frozen)) + abs(given_up - frozen)


def by_kind(recoveries: list[tuple[str, float]]) -> dict[str, float]:
    """Median and worst of all, and the median of each fault."""
    if not recoveries:
        return {}
    seconds = [each for _, each in recoveries]
    found = {"recovery median s": statistics.median(seconds), "recovery worst s": max(seconds)}
    for kind in sorted({kind for kind, _ in recoveries}):
        found[f"recovery median s, {kind}"] = statistics.median(s for each, s in recoveries if each == kind)
    return found


def play(
    job: Job, every: float, kinds: list[str], dice: random.Random, quiet: bool
) -> tuple[Counter[str], list[tuple[str, float]], Counter[str]]:
    """Faults until the job's time is over; what went wrong, the faults' seconds of recovery, the faults."""
    wrong, recoveries, brought = Counter[str](), list[tuple[str, float]](), Counter[str]()
    begin = time.monotonic()
    next_fault, fault_at, fault, told = begin + every, None, "", ""
    while job.process.poll() is None:
        time.sleep(5.0 if fault_at is None else 0.5)
        job.look()
        now = time.monotonic()
        if job.latest_step() and now - job.latest_step() > within(HANG):
            wrong["hangs"] += 1
            break
        if fault_at is not None and (seconds := recovery(job, fault_at)) is not None:
            recoveries.append((fault, seconds))
            _say(quiet, f"{now - begin:7.0f} s  {told}: steps again after {seconds:.2f} s")
            fault_at = None
        if now < next_fault or not job.latest_step() or now - begin > job.seconds - every:
            continue
        next_fault = now + every
        fault = dice.choice(kinds)
        brought[fault] += 1
        fault_at, told = time.monotonic(), bring(job, fault, dice)
        if fault == "kill spare" or told.startswith("nothing"):
            _say(quiet, f"{now - begin:7.0f} s  {told}")
            fault_at = None
    return wrong, recoveries, brought


def _say(quiet: bool, line: str) -> None:
    if not quiet:
        print(line, flush=True)


def judge(job: Job, wrong: Counter[str], reference: list[float]) -> dict[str, float]:
    """Counts what is wrong at the end; returns figures."""
    status = job.launcher.end_within(job.process, 60)
    wrong["bad endings"] += status != 0
    wrong["wrong results"] += sum("WRONG" in line for line in job.lines)
    try:
        job.launcher.wait_until_gone(5)
    except AssertionError:
        wrong["leftovers"] += 1
    found = [float(match[1]) for match in map(ACCURACY.search, job.lines) if match]
    lowest, expected = min(found, default=0.0), min(reference)
    wrong["leftovers"] += sum(1 for path in job.temporary.rglob("*") if not path.is_dir())
    wrong["wrong culprits"] += misnamed(job)
    wrong["lower accuracy"] += lowest < expected - 0.005
    figures = growth(job)
    if wrong.total():
        print("\n".join(line for line in job.lines if not STEP.search(line)), file=sys.stderr)
    wrong["leaks"] += figures["launcher: descriptors an hour"] > 20
    wrong["leaks"] += figures["launcher: bytes an hour"] > 64 << 20
    wrong["leaks"] += figures["oldest worker: descriptors an hour"] > 20
    wrong["leaks"] += figures["oldest worker: bytes an hour"] > 256 << 20
    return {
        "trainings": len(found), "mean accuracy": statistics.mean(found or [0.0]), "lowest accuracy": lowest,
        "mean accuracy without faults": statistics.mean(reference), "lowest without faults": expected,
        **figures,
    }  # fmt: skip


def undisturbed() -> list[float]:
    """The accuracies of some trainings without faults."""
    launcher = Launcher()
    process = launcher.start(
        "-np", str(RANKS), "--min-np", "1", sys.executable, str(PROGRAM), str(time.monotonic() + 20),
        OMP_NUM_THREADS="1",
    )  # fmt: skip
    result = launcher.finish(process, 120)
    assert result.returncode == 0, result.output
    return [float(match[1]) for match in ACCURACY.finditer(result.output)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--every", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reference = undisturbed()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(arguments.seconds, Path(folder))
        dice = random.Random(arguments.seed)
        wrong, recoveries, brought = play(job, arguments.every, arguments.faults, dice, arguments.json)
        figures = judge(job, wrong, reference)
    figures |= by_kind(recoveries)
    kinds = (
        *("hangs", "wrong results", "wrong culprits", "lower accuracy", "bad endings"),
        *("leftovers", "leaks"),
    )
    if arguments.json:
        print(json.dumps({"faults": brought, "wrong": {kind: wrong[kind] for kind in kinds}, **figures}))
    else:
        print(
            f"\n{brought.total()} faults: " + ", ".join(f"{n} {kind}" for kind, n in sorted(brought.items()))
        )
        print("\n".join(f"{name:38} {value:12.3f}" for name, value in figures.items()))
        print("\n".join(f"{kind:38} {wrong[kind]:12}" for kind in kinds))
    return int(wrong.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
