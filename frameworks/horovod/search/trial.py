"""A trial as an objective has it, alike on all ranks of its team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common.process_sets import ProcessSet
from horovod.search.team import Team

Choice = None | bool | int | float | str


class TrialPruned(Exception):
    """An objective raises it on all its ranks after ``should_prune()`` has said so."""


class Trial:
    """What Optuna's trials are, for the ranks of a team, which call each method together, in the same order.

    Attributes:
        number: of the trial in the study, from 0.
        process_set: the ranks of the trial, for every operation of its training.
        params: what has been suggested, by name.
    """

    def __init__(self, number: int, team: Team) -> None:
        self.number = number
        self.params: dict[str, Any] = {}
        self._team = team

    @property
    def process_set(self) -> ProcessSet:
        """See the class."""
        return self._team.process_set

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from ``low`` to ``high``, in steps of ``step``, or evenly in its logarithm.

        Raises:
            ValueError: what Optuna refuses; on all ranks of the team.
        """
        return float(self._suggest("float", name, low, high, {"step": step, "log": log}))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number from ``low`` to ``high``. Raises as ``suggest_float``."""
        return int(self._suggest("int", name, low, high, {"step": step, "log": log}))

    def suggest_categorical(self, name: str, choices: Sequence[Choice]) -> Choice:
        """One of ``choices``. Raises as ``suggest_float``."""
        given = list(choices)
        return given[int(self._suggest("categorical", name, given, None, {}))]

    def report(self, value: float, step: int) -> None:
        """Tells the study how good the training is after ``step``: the mean of what the ranks give.

        Raises:
            TeamError: another rank of the team has failed or returned.
        """
        mean = self._team.mean([float(value)])[0]
        self._team.ask("report", self.number, mean, step)

    def should_prune(self) -> bool:
        """Whether the pruner of the study gives this trial up; the same on all ranks."""
        return bool(self._team.ask("should_prune", self.number))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keeps what JSON can hold with the trial."""
        self._team.ask("set_user_attr", self.number, key, value)

    def _suggest(self, kind: str, name: str, low: Any, high: Any, options: dict[str, Any]) -> Any:
        found = self._team.ask("suggest", self.number, kind, name, low, high, options)
        self.params[name] = low[found] if kind == "categorical" else found
        return found
