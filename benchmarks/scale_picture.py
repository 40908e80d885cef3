"""The picture of the page on scale: what negotiation costs when a job grows, modelled and measured.

python scripts/simulate.py --json --tensors 200 --scale 2 8 32 128 512 2048 10000 > steps.jsonl
python benchmarks/scale.py --ranks 2 4 8 16 32 64 128 256 1000 10000 --json jobs.json
python benchmarks/scale_picture.py steps.jsonl jobs.json docs/pictures/scale.svg
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

Rows = list[dict[str, Any]]

GREY = "#6b7280"
PHASES = (
    ("cold", "first step", "#dc2626"),
    ("cached", "by ids", "#2563eb"),
    ("learned", "learned", "#059669"),
)


class Network(NamedTuple):
    """As the simulator has it, in microseconds."""

    name: str
    link: float  # of a message, the work at its two ends with it
    line: str


NETWORKS = (Network("TCP", 36, "-"), Network("InfiniBand", 2.1, "--"))
CYCLE_US = 1000


def original(ranks: int, network: Network) -> float:
    """Of the original's published design: half a cycle, and two reductions over all ranks."""
    return CYCLE_US / 2 + 2 * math.log2(ranks) * network.link


def draw_steps(axes: Any, rows: Rows) -> None:
    """The time of a step by the number of ranks, on both networks."""
    for network in NETWORKS:
        own = [row for row in rows if row["network"] == network.name]
        ranks = [row["ranks"] for row in own]
        for phase, title, colour in PHASES:
            times = [row[phase]["micros"] for row in own]
            axes.plot(ranks, times, network.line, color=colour, label=f"{title}, {network.name}")
        times = [original(size, network) for size in ranks]
        axes.plot(ranks, times, network.line, color=GREY, label=f"the original's design, {network.name}")
    axes.set(title="Negotiation of a step of 200 tensors (modelled)", ylabel="us", yscale="log")
    axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def draw_pair(axes: Any, rows: Rows, name: str, title: str) -> None:
    """One number of the model, and beside it that of real jobs."""
    axes.plot(
        [row["ranks"] for row in rows],
        [row["model"][name] for row in rows],
        color=PHASES[1][2],
        label="modelled",
    )
    draw_measured(axes, rows, name, title)


def draw_measured(axes: Any, rows: Rows, name: str, title: str, factor: float = 1) -> None:
    """One number of the real jobs."""
    real = [row for row in rows if row["measured"]]
    values = [row["measured"][name] * factor for row in real]
    axes.plot([row["ranks"] for row in real], values, "o", color=PHASES[0][2], label="measured")
    axes.set(title=title)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def draw(steps: Rows, jobs: Rows, path: Path) -> None:
    """Writes the picture."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "scale", "font.family": "sans-serif"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10.5, 7.6), layout="constrained")
    draw_steps(axes[0][0], steps)
    draw_pair(axes[0][1], jobs, "links", "Links of the rank that has most")
    draw_pair(axes[1][0], jobs, "by_ids_messages", "Messages of one rank for a step by ids")
    draw_measured(axes[1][1], jobs, "start_processor", "Start: the processor's time of a rank, ms", 1e3)
    for part in axes.flat:
        part.set(xscale="log", xlabel="ranks")
        part.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=Path, help="of scripts/simulate.py --json")
    parser.add_argument("jobs", type=Path, help="of benchmarks/scale.py --json")
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    steps = [json.loads(line) for line in args.steps.read_text(encoding="utf-8").splitlines()]
    draw(steps, json.loads(args.jobs.read_text(encoding="utf-8")), args.picture)


if __name__ == "__main__":
    main()
