"""Plots in a file, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

from .text import Plot


def draw(plots: Sequence[Plot], path: str) -> None:
    """Writes one picture with all plots, each below the other.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
        ValueError: its name has an ending that is none of a picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3 * len(plots)), layout="constrained")
    FigureCanvasAgg(figure)
    for index, plot in enumerate(plots, 1):
        axes = figure.add_subplot(len(plots), 1, index)
        axes.plot(plot.places, plot.values, marker="." if len(plot.values) < 100 else None)
        axes.set_xlabel(plot.axis)
        axes.set_ylabel(plot.name)
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=120)
