"""Trains examples/torch_digits.py with one process and then with two, and shows what the second one brought.

Every process has one thread and batches of 32 in both runs, as a user would scale a script out: with two
processes a step takes 64 samples, the learning rate is doubled, and an epoch has half as many steps.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "torch_digits.py"
TARGET_ACCURACY = 0.95


@dataclass
class Run:
    """One training run as the example reported it; a list has a value for each epoch."""

    processes: int
    losses: list[float]
    seconds: list[float]  # since the start of training
    accuracy: float
    samples_per_s: float  # median of all epochs but the first
    identical: bool


def title(processes: int) -> str:
    return f"{processes} process{'es' if processes > 1 else ''}"


def show(text: str) -> None:
    """On a terminal, a line that the next one replaces."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


def train(processes: int, epochs: int, folder: Path) -> Run:
    """Runs the example and shows its epoch; all of its output is shown only where it fails."""
    report = folder / f"{processes}.jsonl"
    report.unlink(missing_ok=True)
    command = [sys.executable, str(EXAMPLE), "--epochs", str(epochs), "--json", str(report)]
    if processes > 1:
        horovodrun = Path(sys.executable).with_name("horovodrun")  # of this environment, and no other
        command = [str(horovodrun), "-np", str(processes), *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    said = []
    show(f"  {title(processes):11}  starting")
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        for line in run.stdout or ():
            said.append(line)
            if epoch := re.search(r"epoch +(\d+) +(loss \S+)", line):
                show(f"  {title(processes):11}  epoch {epoch[1]} of {epochs}  {epoch[2]}")
    show("")
    if run.returncode:
        sys.exit(f"{''.join(said)}demo failed: the training ended with status {run.returncode}")
    return read_report(report)


def read_report(path: Path) -> Run:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steady = [line["samples_per_s"] for line in lines[1:]] or [lines[0]["samples_per_s"]]
    return Run(
        processes=lines[-1]["processes"],
        losses=[line["loss"] for line in lines],
        seconds=[line["seconds"] for line in lines],
        accuracy=lines[-1]["accuracy"],
        samples_per_s=statistics.median(steady),
        identical=all(line["identical"] for line in lines),
    )


def row(run: Run) -> str:
    """One line of the table."""
    return (
        f"  {title(run.processes):11}  {run.seconds[-1]:6.1f} s  {run.samples_per_s:7,.0f} samples/s  "
        f"loss {run.losses[-1]:.4f}  test accuracy {run.accuracy:.1%}"
    )


def draw(runs: list[Run], path: Path) -> None:
    """Loss against seconds, and how many samples a second each run takes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loss, speed) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(2, 1))
    colours = ("#6b7280", "#2563eb")
    for run, colour in zip(runs, colours, strict=True):
        loss.plot(run.seconds, run.losses, "o-", color=colour, markersize=4, label=title(run.processes))
    loss.set(title="Training loss", xlabel="seconds", yscale="log")
    loss.grid(True, alpha=0.3)
    loss.legend()
    bars = speed.bar(
        [title(run.processes) for run in runs], [run.samples_per_s for run in runs], color=colours, width=0.6
    )
    speed.bar_label(bars, [f"{run.samples_per_s:,.0f}" for run in runs], padding=2)
    speed.set(title="Samples per second")
    speed.margins(y=0.12)
    speed.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def shortfalls(runs: list[Run]) -> list[str]:
    """What a demonstration must not hide."""
    found = [f"{title(run.processes)} ended with different parameters" for run in runs if not run.identical]
    if runs[-1].accuracy < TARGET_ACCURACY:
        found.append(f"accuracy {runs[-1].accuracy:.1%} is below {TARGET_ACCURACY:.0%}")
    return found


def runnable() -> int:
    """How many threads of others want a processor: the most of half a second."""
    most = 0
    for _ in range(5):
        time.sleep(0.1)
        threads = Path("/proc/loadavg").read_text(encoding="ascii").split()[3]
        most = max(most, int(threads.split("/")[0]) - 1)  # without the one that reads this
    return most


def disturbance() -> str:
    """A line for a machine on which the figures mean little; empty for another one."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    # The load is the average of a minute: it still counts a build that has just ended.
    if load <= processors or runnable() <= processors:
        return ""
    return (
        f"Other programs were computing (load {load:.1f} on {processors} processors): "
        "run it again on an idle machine.\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "demo")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    print(f"A small CNN learns handwritten digits in {args.epochs} epochs. Each process has one thread.\n")
    runs, disturbed = [], disturbance()
    for processes in (1, 2):
        runs.append(train(processes, args.epochs, args.out))
        print(row(runs[-1]), flush=True)
    picture = args.out / "loss.png"
    draw(runs, picture)
    speed_up = runs[1].samples_per_s / runs[0].samples_per_s
    print(f"\nTwo processes take {speed_up:.2f} times as many samples a second (2.00 is ideal).")
    print(disturbed, end="")
    problems = shortfalls(runs)
    if not problems:
        print("Both ranks ended with the same parameters, bit for bit.")
    print(f"Loss against seconds: {os.path.relpath(picture)}")
    print(f"The script: {os.path.relpath(EXAMPLE)}; what made it distributed is marked # 1. to # 5.")
    print("\n".join(f"demo failed: {problem}" for problem in problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
