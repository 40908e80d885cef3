"""What a search has found, on every rank."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horovod.bootstrap.text import escaped

_PICTURES = {
    1: ("optimization_history", "intermediate_values", "slice", "timeline"),
    2: ("pareto_front", "timeline"),
    3: ("pareto_front", "timeline"),
}
"""By the number of directions that a study has."""


@dataclass
class Result:
    """The trials of a study; ``print`` shows them as a table.

    Attributes:
        trials: by number: ``number``, ``state`` (COMPLETE, PRUNED or FAIL), ``values``, ``params``,
            ``seconds``, ``team``, ``reports`` by step, and ``error`` (``rank``, ``traceback``).
        best: the numbers of the best ones: one, or several where a study has several directions.
        study: of Optuna, on rank 0 only.
    """

    trials: list[dict[str, Any]]
    best: list[int]
    study: Any = field(default=None, repr=False)

    @property
    def best_params(self) -> dict[str, Any]:
        """Of the best trial. Raises ValueError where none is complete."""
        return dict(self._best()["params"])

    @property
    def best_value(self) -> float:
        """Of the best trial. Raises ValueError where none is complete."""
        return float(self._best()["values"][0])

    def as_json(self) -> str:
        """All of it, for programs."""
        return json.dumps({"best": self.best, "trials": self.trials}, indent=2)

    def plot(self, folder: str) -> list[Path]:
        """Draws Optuna's pictures of the study and of the values of its parameters into a folder, on rank 0.
        Needs matplotlib. Returns the files.
        """
        if self.study is None:
            return []
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as drawings

        Path(folder).mkdir(parents=True, exist_ok=True)
        files = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna's, of functions that may change
            for name in _PICTURES.get(len(self.study.directions), ("timeline",)):
                drawn = getattr(drawings, f"plot_{name}")(self.study)
                figure = (drawn if hasattr(drawn, "figure") else drawn.ravel()[0]).figure
                files.append(Path(folder, f"{name}.png"))
                figure.savefig(files[-1], bbox_inches="tight")
                pyplot.close(figure)
        return files

    def __str__(self) -> str:
        names = sorted({name for trial in self.trials for name in trial["params"]})
        head = ["trial", "state", "value", *map(escaped, names), "seconds", "team"]
        lines = [head, *([*map(_text, _cells(trial, names))] for trial in self.trials)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        shown = [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines
        ]
        for number in self.best:
            at = next(at for at, trial in enumerate(self.trials) if trial["number"] == number)
            shown[at + 1] += "  best"
        return "\n".join(shown)

    def _best(self) -> dict[str, Any]:
        if not self.best:
            raise ValueError("no trial of the search is complete")
        return next(trial for trial in self.trials if trial["number"] == self.best[0])


def _cells(trial: dict[str, Any], names: list[str]) -> list[Any]:
    params = [trial["params"].get(name) for name in names]
    values = trial["values"]
    value = None if values is None else ", ".join(map(_text, values))
    return [trial["number"], trial["state"].lower(), value, *params, trial["seconds"], trial["team"]]


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else escaped(str(cell))
