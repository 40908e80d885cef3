"""The picture of a comparison: an allreduce by size, and how the libraries compare in everything else."""

import statistics
from pathlib import Path
from typing import Any

from samples import OURS, Row

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
SCALES = ((1e-6, "1 us"), (1e-5, "10 us"), (1e-4, "0.1 ms"), (1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "0.1 s"))
BLUE, GREY = "#2563eb", "#6b7280"


def bytes_of(case: str) -> int:
    """The size that a case of the allreduce has in its name, such as ``16 KiB``."""
    number, unit = case.split()
    return int(number) * UNITS[unit]


def ratios(rows: list[Row]) -> list[tuple[str, float]]:
    """(title, how many times faster ours is) of each peer in each case that is no allreduce. Ranks that do
    not communicate are left out: nothing can be faster.
    """
    return [
        (f"{row.case}\nover {peer}", statistics.median(row.ratios(peer)))
        for row in rows
        if row.benchmark != "allreduce"
        for peer in row.rounds
        if not peer.startswith(OURS) and peer != "alone"
    ]


def draw(rows: list[Row], path: Path, compare: bool = True) -> bool:
    """Writes the picture, of the parts for which there are rows; False if there are none. Without ``compare``
    it shows times alone.
    """
    sizes, others = [row for row in rows if row.benchmark == "allreduce"], ratios(rows) if compare else []
    parts = [part for part, wanted in ((_by_size, sizes), (_faster, others)) if wanted]
    if not parts:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(parts), figsize=(5.5 * len(parts), 4.4), layout="constrained", squeeze=False
    )
    for part, own in zip(parts, axes[0], strict=True):
        part(own, sizes if part is _by_size else others)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return True


def _by_size(axes: Any, rows: list[Row]) -> None:
    places = [bytes_of(row.case) for row in rows]
    for library in rows[0].rounds:
        colour = BLUE if library == OURS else GREY
        times = [row.median(library) for row in rows]
        axes.plot(places, times, "o-", color=colour, markersize=4, label=library)
    axes.set(title="One allreduce: median time by size (lower is better)", xscale="log", yscale="log")
    every = 1 + len(rows) // 6
    axes.set_xticks(places[::every], [row.case for row in rows][::every])
    axes.set_yticks(*zip(*SCALES, strict=True))
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend()


def _faster(axes: Any, found: list[tuple[str, float]]) -> None:
    titles, values = zip(*reversed(found), strict=True)
    colours = [BLUE if value >= 1 else GREY for value in values]
    axes.set_xscale("log")
    axes.barh(titles, [value - 1 for value in values], left=1, color=colours, height=0.6)
    for place, value in enumerate(values):
        beside = {"x": 4, "ha": "left"} if value >= 1 else {"x": -4, "ha": "right"}
        axes.annotate(
            f"{value:.2f}x",
            (value, place),
            (beside["x"], 0),
            textcoords="offset points",
            ha=beside["ha"],
            va="center",
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set(title="How many times faster horovod is")
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.margins(x=0.25)
    axes.tick_params(axis="y", labelsize=8)
