"""Trains examples/torch_digits.py with one process and then with two, and shows what the second one brought.

Every process has one thread and batches of 32 in both runs, as a user would scale a script out: with two
processes a step takes 64 samples, the learning rate is doubled, and an epoch has half as many steps.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET_ACCURACY = 0.95


@dataclass
class Run:
    """One training run as the example reported it."""

    processes: int
    losses: list[float]
    accuracy: float
    samples_per_s: float  # median of all epochs but the first
    identical: bool


def train(processes: int, epochs: int, folder: Path) -> Run:
    """Runs the example; its output goes to the terminal."""
    report = folder / f"{processes}.jsonl"
    report.unlink(missing_ok=True)
    example = [sys.executable, str(ROOT / "examples" / "torch_digits.py")]
    command = [*example, "--epochs", str(epochs), "--json", str(report)]
    if processes > 1:
        horovodrun = Path(sys.executable).with_name("horovodrun")  # of this environment, and no other
        command = [str(horovodrun), "-np", str(processes), *command]
    print(f"\nTraining with {processes} process(es), 1 thread each ...", flush=True)
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return read_report(report)


def read_report(path: Path) -> Run:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steady = [line["samples_per_s"] for line in lines[1:]] or [lines[0]["samples_per_s"]]
    return Run(
        processes=lines[-1]["processes"],
        losses=[line["loss"] for line in lines],
        accuracy=lines[-1]["accuracy"],
        samples_per_s=statistics.median(steady),
        identical=all(line["identical"] for line in lines),
    )


def table(runs: list[Run]) -> str:
    rows = ["processes  test accuracy  samples/s  speed-up"]
    for run in runs:
        speed_up = run.samples_per_s / runs[0].samples_per_s
        rows.append(f"{run.processes:9}  {run.accuracy:13.1%}  {run.samples_per_s:9,.0f}  {speed_up:7.2f}x")
    return "\n".join(rows)


def draw(runs: list[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for run, style in zip(runs, ("o-", "s--"), strict=True):
        epochs = range(1, len(run.losses) + 1)
        label = (
            f"{run.processes} process{'es' if run.processes > 1 else ''}, {run.samples_per_s:,.0f} samples/s"
        )
        axes.plot(epochs, run.losses, style, markersize=4, label=label)
    axes.set(title="Handwritten digits, small CNN", xlabel="epoch", ylabel="training loss", yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def shortfalls(runs: list[Run]) -> list[str]:
    """What a demonstration must not hide."""
    found = [
        f"{run.processes} processes ended with different parameters" for run in runs if not run.identical
    ]
    if runs[-1].accuracy < TARGET_ACCURACY:
        found.append(f"accuracy {runs[-1].accuracy:.1%} is below {TARGET_ACCURACY:.0%}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "demo")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    runs = [train(processes, args.epochs, args.out) for processes in (1, 2)]
    picture = args.out / "loss.png"
    draw(runs, picture)
    print(
        f"\n{table(runs)}\n\n1 thread and batches of 32 per process; loss curves: {os.path.relpath(picture)}"
    )
    problems = shortfalls(runs)
    print("\n".join(f"demo failed: {problem}" for problem in problems) or "Both ranks ended bit-identical.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
