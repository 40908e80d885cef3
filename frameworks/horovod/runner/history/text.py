"""A history as text: a table, and plots for a terminal. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from horovod.bootstrap.text import escaped

_AXES = ("step", "batch", "commit")
_NOT_PLOTTED = {"time", "epoch", *_AXES}
_HEIGHT = 10
_LEAST_WIDTH, _MOST_WIDTH = 20, 100
_WIDEST_CELL = 40


class Plot(NamedTuple):
    """The numbers of one name, and where on the axis each is."""

    name: str
    axis: str
    places: list[float]
    values: list[float]


def plots_of(lines: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> list[Plot]:
    """One for each name that has numbers; or for each of these ``names``."""
    axis = next((name for name in _AXES if all(_is_number(line.get(name)) for line in lines)), "line")
    wanted = [name for name in _names(lines) if name not in _NOT_PLOTTED] if names is None else names
    plots = []
    for name in wanted:
        points = [
            (float(line.get(axis, number)), float(line[name]))
            for number, line in enumerate(lines, 1)
            if _is_number(line.get(name))
        ]
        if points:
            plots.append(Plot(name, axis, [place for place, _ in points], [value for _, value in points]))
    return plots


def table(lines: Sequence[Mapping[str, Any]], last: int) -> str:
    """The last lines, or all when ``last`` is 0, under a line of names."""
    shown = lines[-last:] if last else lines
    names = _names(shown)
    rows = [[_cell(name, line.get(name, "")) for name in names] for line in shown]
    heads = [escaped(name)[:_WIDEST_CELL] for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    texts = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in [heads, *rows]
    ]
    if len(shown) < len(lines):
        texts.insert(1, f"... {len(lines) - len(shown)} earlier lines (--last 0 shows them)")
    return "\n".join(texts)


def drawn(plot: Plot, width: int) -> str:
    """The plot, at most so many characters wide. A column shows the mean of the values that fall into it."""
    low, high = min(plot.values), max(plot.values)
    labels = [_number(high), _number(low)]
    margin = max(map(len, labels)) + 1
    columns = _columns(plot, max(_LEAST_WIDTH, min(width, _MOST_WIDTH) - margin - 2))
    grid = [[" "] * len(columns) for _ in range(_HEIGHT)]
    for column, value in enumerate(columns):
        if value is not None:
            part = (value - low) / (high - low) if high > low else 0.5
            grid[round((1 - part) * (_HEIGHT - 1))][column] = "*"
    sides = [labels[0], *[""] * (_HEIGHT - 2), labels[1]]
    rows = [f"{side.rjust(margin)}|{''.join(row).rstrip()}" for side, row in zip(sides, grid, strict=True)]
    first, last = _number(plot.places[0]), _number(plot.places[-1])
    axis = f"{first} {escaped(plot.axis)}".ljust(len(columns) - len(last)) + last
    return "\n".join(
        [escaped(plot.name), *rows, f"{' ' * margin}+{'-' * len(columns)}", f"{' ' * (margin + 1)}{axis}"]
    )


def _columns(plot: Plot, count: int) -> list[float | None]:
    first, last = min(plot.places), max(plot.places)
    found: list[list[float]] = [[] for _ in range(count)]
    for place, value in zip(plot.places, plot.values, strict=True):
        part = (place - first) / (last - first) if last > first else 0.5
        found[min(int(part * count), count - 1)].append(value)
    return [sum(values) / len(values) if values else None for values in found]


def _names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for line in lines for name in line)
    first = [name for name in ("commit", "time") if name in names]
    return [*first, *(name for name in names if name not in first)]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _cell(name: str, value: Any) -> str:
    if name == "time" and _is_number(value):
        try:
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
        except (OSError, OverflowError, ValueError):
            return _number(value)
    return _number(value) if _is_number(value) else escaped(str(value))[:_WIDEST_CELL]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
