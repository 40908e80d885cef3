"""The study, on the one rank that has it: trials are handed out, judged and counted."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from horovod.bootstrap.text import escaped

if TYPE_CHECKING:
    import optuna

NEEDED = ("next", "end")
"""What ranks ask without which the search cannot go on."""
ORDINAL = "horovod.ordinal"
"""An attribute of a trial: which one of the search it is, however often it has been begun."""
_TEAM, _ERROR, _REPEATED = "horovod.team", "horovod.error", "horovod.repeated"
_LOST = "a rank of this trial is gone"
_NO_OPTUNA = "hvd.search needs Optuna: pip install horovod[search], or pip install optuna"


def import_optuna() -> Any:
    """The package; what it warns of is not printed. Raises ImportError, which says what to install."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(_NO_OPTUNA) from error
    # One rank among many would print it. The filter stays: ``catch_warnings`` is not for threads.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"optuna\.")
    return optuna


class Keeper:
    """Hands out the trials of a study until it has as many as are wanted.

    Trials that were running when an earlier process ended are interrupted: they are run again, with the same
    parameters, and count once.

    Args:
        study: of Optuna.
        wanted: how many trials it is to have at the end, those of an earlier process among them.
        whole: the teams whose trials are run again: the others have lost a rank. None: all are.
        has_news: whether hosts have come or gone: then no trial begins, until the teams are made anew.
        say: tells people of each trial that ends.
    """

    def __init__(
        self,
        study: optuna.Study,
        wanted: int,
        whole: Collection[int] | None = None,
        has_news: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._optuna = import_optuna()
        self.study = study
        self._wanted = wanted
        self._say = say or _print
        self._running: dict[int, optuna.Trial] = {}
        self._again: list[tuple[int, dict[str, Any]]] = []
        self._begun = 0  # of those that count
        self._counted = 0
        self._has_news = has_news
        self._has_stopped = False
        self._take_over(whole)

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """What ranks may ask; see ``calls.Service``."""
        names = (*NEEDED, "suggest", "report", "should_prune", "set_user_attr")
        return {name: getattr(self, name) for name in names}

    @property
    def is_full(self) -> bool:
        """Whether the study has as many trials as are wanted."""
        return self._counted >= self._wanted

    def next(self, team: int) -> int | None:
        """The number of a new trial for a team; None: there are enough."""
        if self._counted + len(self._running) >= self._wanted:
            return None
        self._has_stopped = self._has_stopped or self._has_news()
        if self._has_stopped:
            return None
        if self._again:
            ordinal, params = self._again.pop(0)
            self.study.enqueue_trial(params)
        else:
            ordinal, self._begun = self._begun, self._begun + 1
        trial = self.study.ask()
        trial.set_user_attr(ORDINAL, ordinal)
        trial.set_user_attr(_TEAM, team)
        self._running[trial.number] = trial
        return trial.number

    def result(self) -> list[Any] | None:
        """All trials, and the numbers of the best ones; None: the search goes on with other teams."""
        return None if self._has_stopped else [self.trials(), self.best()]

    def suggest(
        self, number: int, kind: str, name: str, low: Any, high: Any, options: Mapping[str, Any]
    ) -> Any:
        """A value of a parameter; of a categorical one, whose choices are ``low``, its position."""
        trial = self._running[number]
        if kind == "float":
            return trial.suggest_float(name, low, high, **options)
        if kind == "int":
            return trial.suggest_int(name, low, high, **options)
        value = trial.suggest_categorical(name, low)
        return next(at for at, choice in enumerate(low) if _are_same(choice, value))

    def report(self, number: int, value: float, step: int) -> None:
        """How good a trial is after a step."""
        self._running[number].report(value, step)

    def should_prune(self, number: int) -> bool:
        """Whether the pruner gives it up."""
        return bool(self._running[number].should_prune())  # may be a bool of numpy

    def set_user_attr(self, number: int, key: str, value: Any) -> None:
        """Keeps something with a trial."""
        self._running[number].set_user_attr(key, value)

    def end(self, number: int, outcomes: Sequence[Mapping[str, Any]]) -> None:
        """A trial has ended on all its ranks, in the ways that they tell: a ``value``, ``pruned`` or an
        ``error``.
        """
        trial = self._running.pop(number)
        self._counted += 1
        state = self._optuna.trial.TrialState
        errors = [outcome for outcome in outcomes if "error" in outcome]
        is_pruned = any(outcome.get("pruned") for outcome in outcomes)
        if errors and not (is_pruned and all(each["follows"] for each in errors)):
            first = next((each for each in errors if not each["follows"]), errors[0])
            trial.set_user_attr(_ERROR, {"rank": first["rank"], "traceback": first["error"]})
            self.study.tell(trial, state=state.FAIL)
            self._tell(f"trial {number} failed on rank {first['rank']}: {_headline(first['error'])}")
        elif is_pruned:
            self.study.tell(trial, state=state.PRUNED)
            self._tell(f"trial {number} pruned")
        else:
            self._tell_value(trial, [outcome["value"] for outcome in outcomes])

    def trials(self) -> list[dict[str, Any]]:
        """All trials that count, as JSON could have them."""
        return [_row(trial) for trial in self.study.get_trials(deepcopy=False) if not _is_repeated(trial)]

    def best(self) -> list[int]:
        """The numbers of the best trials: one, or several where there are several directions."""
        if len(self.study.directions) > 1:
            return [trial.number for trial in self.study.best_trials]
        try:
            return [self.study.best_trial.number]
        except ValueError:  # no trial is complete
            return []

    def _tell_value(self, trial: optuna.Trial, values: Sequence[Sequence[float]]) -> None:
        given = [each for each in values if each]  # a rank that returns None leaves it to the others
        means = [sum(column) / len(column) for column in zip(*given, strict=False)]
        if refusal := self._refusal(given, means):
            trial.set_user_attr(_ERROR, {"rank": None, "traceback": refusal})
            self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            self._tell(f"trial {trial.number} failed: {refusal}")
        else:
            self.study.tell(trial, means)
            self._tell(f"trial {trial.number} gave {', '.join(f'{mean:.4g}' for mean in means)}")

    def _refusal(self, given: Sequence[Sequence[float]], means: Sequence[float]) -> str | None:
        """Why values are none of the study, which takes them without a word otherwise."""
        directions = len(self.study.directions)
        if not given:
            return "its objective returned nothing: let it return a number, on one rank at least"
        for each in given:
            if len(each) != directions:
                return f"its objective returned {len(each)} numbers; directions of the study: {directions}"
        return "its objective returned NaN" if any(map(math.isnan, means)) else None

    def _tell(self, what: str) -> None:
        best = self.best()
        is_one = len(best) == 1 and len(self.study.directions) == 1
        found = f", best {self.study.best_value:.4g} (trial {best[0]})" if is_one else ""
        self._say(escaped(f"search: {self._counted} of {self._wanted} trials{found}; {what}"))

    def _take_over(self, whole: Collection[int] | None) -> None:
        """What an earlier process has left."""
        state, lost = self._optuna.trial.TrialState, []
        for trial in self.study.get_trials(deepcopy=True):
            if trial.state == state.RUNNING:
                team = trial.user_attrs.get(_TEAM)  # None: no team has heard of it
                is_whole = whole is None or team is None or team in whole
                self._interrupt(trial, is_whole)
                lost += [] if is_whole else [trial.number]
            elif trial.state.is_finished() and not _is_repeated(trial):
                self._counted += 1
        known = [trial for trial in self.study.get_trials() if _has_ordinal(trial)]
        self._begun = 1 + max(map(_ordinal, known), default=-1)
        done = {_ordinal(trial) for trial in known if not _is_repeated(trial)}
        cut_off = {_ordinal(trial): trial.params for trial in known if _is_repeated(trial)}
        self._again = [(ordinal, cut_off[ordinal]) for ordinal in sorted(cut_off.keys() - done)]
        for number in lost:
            self._tell(f"trial {number} failed: {_LOST}")

    def _interrupt(self, trial: optuna.trial.FrozenTrial, is_whole: bool) -> None:
        storage, number = self.study._storage, trial._trial_id
        if is_whole:
            storage.set_trial_user_attr(number, _REPEATED, True)
        else:
            reason = {"rank": None, "traceback": _LOST}
            storage.set_trial_user_attr(number, _ERROR, reason)
            self._counted += 1
        self.study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)


def _print(line: str) -> None:
    with contextlib.suppress(
        OSError, ValueError
    ):  # full, without a reader or closed: no reason to end a study
        print(line, file=sys.stderr, flush=True)


def _are_same(choice: Any, value: Any) -> bool:
    """Whether a choice is the value, also where it is NaN, and 1 is neither 1.0 nor True."""
    return type(choice) is type(value) and (choice == value or (choice != choice and value != value))


def _headline(error: str) -> str:
    """The exception of a traceback, without the further lines of its message."""
    lines = error.strip().splitlines()
    begin = max((at for at, line in enumerate(lines) if line.startswith("Traceback (")), default=-1)
    return next((line for line in lines[begin + 1 :] if not line.startswith(" ")), lines[-1])


def _has_ordinal(trial: optuna.trial.FrozenTrial) -> bool:
    """Not one of ours that was cut off before it got one: another trial has it then."""
    return ORDINAL in trial.user_attrs or not _is_repeated(trial)


def _ordinal(trial: optuna.trial.FrozenTrial) -> int:
    return int(trial.user_attrs.get(ORDINAL, trial.number))


def _is_repeated(trial: optuna.trial.FrozenTrial) -> bool:
    return bool(trial.user_attrs.get(_REPEATED))


def _row(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    seconds = None if trial.duration is None else trial.duration.total_seconds()
    row = {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "seconds": seconds,
        "team": trial.user_attrs.get(_TEAM),
        "error": trial.user_attrs.get(_ERROR),
        "reports": dict(trial.intermediate_values),
    }
    return json.loads(json.dumps(row, default=str))
