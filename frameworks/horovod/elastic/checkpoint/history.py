"""What a training records: a line of JSON for each call of ``record``, with the commit that it belongs to."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

MOST_LINES = 100_000
"""So many wait for a folder that cannot be written; then the oldest are dropped."""
_DROPPED_LINES = MOST_LINES // 8  # at a time


def line_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one line: numbers and text; others as ``item()`` gives them, or as text.

    Raises:
        TypeError: a name that the line has itself.
    """
    if "commit" in values:
        raise TypeError(
            "record(commit=...): each line has the number of its commit already; use another name"
        )
    return {"time": round(time.time(), 3), **{name: _plain(value) for name, value in values.items()}}


def encode(lines: Iterable[tuple[int, Mapping[str, Any]]]) -> bytes:
    """Pairs of commit and values, as lines of a file."""
    return b"".join(json.dumps({"commit": commit, **values}).encode() + b"\n" for commit, values in lines)


def decode(data: bytes) -> list[dict[str, Any]]:
    """The lines of a file. What is not a whole line is left out."""
    found = []
    for line in data.splitlines():
        try:
            told = json.loads(line)
        except (RecursionError, ValueError):
            continue
        if isinstance(told, dict):
            found.append(told)
    return found


class Recorder:
    """What this rank has recorded since the newest checkpoint. All ranks record alike, and keep it until it
    is on disk: any of them may be rank 0 soon.
    """

    def __init__(self) -> None:
        self._committed: list[tuple[int, dict[str, Any]]] = []
        self._pending: list[dict[str, Any]] = []

    def add(self, values: Mapping[str, Any]) -> None:
        """One line, of the commit to come."""
        self._pending.append(line_of(values))

    def commit(self, number: int) -> None:
        """What was added since the last commit belongs to this one."""
        self._committed += [(number, values) for values in self._pending]
        self._pending = []
        if len(self._committed) > MOST_LINES:
            del self._committed[: len(self._committed) - MOST_LINES + _DROPPED_LINES]

    def go_back(self) -> None:
        """Drops what was added since the last commit."""
        self._pending = []

    def lines_between(self, before: int, commit: int) -> list[tuple[int, dict[str, Any]]]:
        """Those of commits up to this one that come after another, up to which they are on disk."""
        return [line for line in self._committed if before < line[0] <= commit]

    def forget_until(self, commit: int) -> None:
        """Those of commits up to this one are on disk."""
        if self._committed and self._committed[0][0] <= commit:
            self._committed = [line for line in self._committed if line[0] > commit]

    def give(self) -> list[Any]:
        """For a newcomer."""
        return [self._committed, self._pending]

    def take(self, told: list[Any]) -> None:
        """From the rank whose state all get."""
        committed, pending = told
        self._committed = [(commit, values) for commit, values in committed]
        self._pending = list(pending)


def _plain(value: Any) -> Any:
    if not isinstance(value, (bool, int, float, str, type(None))) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # strict readers of JSON refuse NaN
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
