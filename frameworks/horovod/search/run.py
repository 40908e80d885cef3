"""``hvd.search`` itself: the ranks of a job become teams, and each team takes one trial after the other."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horovod.common import basics
from horovod.common.collective.byte_objects import objects
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, TensorMismatchError
from horovod.common.process_sets import own_sets
from horovod.search.calls import KEEPER, Client, RefusedError, Service
from horovod.search.journal import open_journal
from horovod.search.keeper import NEEDED, Keeper, import_optuna
from horovod.search.lasting import Progress, run_lasting
from horovod.search.result import Result
from horovod.search.sampler import seeded_sampler
from horovod.search.team import Team, TeamError
from horovod.search.trial import Trial, TrialPruned

if TYPE_CHECKING:
    import optuna

Objective = Callable[[Trial], float | Sequence[float] | None]
_JOURNAL = "search.journal"


def search(
    objective: Objective,
    trials: int = 20,
    ranks_per_trial: int | Sequence[int] = 1,
    *,
    study: Callable[[], optuna.Study] | None = None,
    storage: Any = _JOURNAL,
    study_name: str = "search",
    direction: str | Sequence[str] = "minimize",
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    seed: int | None = None,
) -> Result:
    """Runs the trials of a study at the same time, each on some of the ranks. All ranks call it together.

    A trial whose objective raises fails alone, and the study keeps the rank and its traceback. A study that
    exists goes on: trials that were running when it was left are run again.

    Args:
        objective: what each rank of a trial calls; it returns a number (or one for each direction), of which
            the mean over the ranks counts that do not return None, or raises ``TrialPruned``.
        trials: how many the study is to have at the end.
        ranks_per_trial: ranks of each trial; or the sizes of all teams, such as ``[2, 1, 1]``. Ranks that
            make no whole team stay idle.
        study: makes the study, on rank 0; in place of all that follows.
        storage: of Optuna, or its address, or the path of a journal file on the host of rank 0. One job at a
            time runs a study.
        study_name: in the storage.
        direction: "minimize" or "maximize"; or several.
        sampler: of Optuna.
        pruner: of Optuna.
        seed: without a ``sampler``: values are drawn at random, and are those of each other run with this
            seed, however trials are interleaved.

    Returns:
        The trials, on every rank.

    Raises:
        ImportError: there is no Optuna; on every rank.
        ValueError: no team can be made, or the study cannot be opened or written; on every rank.
        HorovodInternalError: a rank is gone.
    """

    def make(mine: contextlib.ExitStack, goes_on: bool) -> optuna.Study:
        if study:
            return study()
        opened = storage
        if isinstance(storage, str | os.PathLike) and "://" not in str(storage):
            opened = open_journal(Path(storage), mine, goes_on)
        return _open(opened, study_name, direction, sampler, pruner, seed)

    def once(progress: Progress) -> Result:
        with contextlib.ExitStack() as mine:
            return _search(objective, trials, ranks_per_trial, partial(make, mine), progress)

    return run_lasting(once)


def _search(
    objective: Objective,
    trials: int,
    ranks_per_trial: int | Sequence[int],
    make: Callable[[bool], optuna.Study],
    progress: Progress,
) -> Result:
    sizes = team_sizes(basics.size(), ranks_per_trial, has_lost=progress.whole is not None)
    keeper, problem = None, ""
    if basics.rank() == KEEPER:
        try:
            keeper = Keeper(
                make(progress.whole is not None), trials, progress.whole, lambda: progress.has_news
            )
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    is_full = keeper is not None and keeper.is_full
    problem, is_full = objects.broadcast_object((problem, is_full), KEEPER, "horovod.search.problem")
    if problem:
        raise (ImportError if problem.startswith("ImportError") else ValueError)(f"hvd.search: {problem}")
    if is_full:
        sizes = []
    elif not sizes:
        raise _no_team(basics.size(), ranks_per_trial)
    sets = own_sets(_ranks(sizes))
    at = next((at for at, process_set in enumerate(sets) if process_set.included()), None)
    progress.begin(at, 0 if at is None else sizes[at])
    way = Client() if keeper is None else Service(keeper.functions, NEEDED, len(sets), keeper.result)
    if at is not None:
        _run_trials(objective, Team(sets[at], way), at, progress)
    try:
        found = way.end()
    except RefusedError as error:
        found = error
    # If a rank is lost before all know the end, the others begin again together: none may have left.
    objects.allgather_object(None, "horovod.search.end")
    if isinstance(found, RefusedError):
        raise ValueError(f"hvd.search: the study cannot go on: {found}")
    if found is None:
        raise HostsUpdatedInterrupt
    rows, best = found
    return Result(rows, best, None if keeper is None else keeper.study)


def team_sizes(ranks: int, asked: int | Sequence[int], has_lost: bool = False) -> list[int]:
    """How many ranks each team has; in a job that ``has_lost`` ranks, of those that it still has ranks for.

    Raises:
        ValueError: such teams never were possible.
    """
    if isinstance(asked, int):
        sizes = [asked] * (ranks // asked) if asked > 0 else []
    else:
        sizes = list(asked)
    while has_lost and sum(sizes) > ranks:
        sizes.pop()
    if not has_lost and (not sizes or min(sizes) < 1 or sum(sizes) > ranks):
        raise _no_team(ranks, asked)
    return sizes


def _no_team(ranks: int, asked: int | Sequence[int]) -> ValueError:
    return ValueError(f"ranks_per_trial={asked}: the job has {ranks} ranks, and a trial needs at least one")


def _ranks(sizes: Sequence[int]) -> list[list[int]]:
    begins = [sum(sizes[:at]) for at in range(len(sizes))]
    return [list(range(begin, begin + size)) for begin, size in zip(begins, sizes, strict=True)]


def _open(
    storage: Any,
    name: str,
    direction: str | Sequence[str],
    sampler: optuna.samplers.BaseSampler | None,
    pruner: optuna.pruners.BasePruner | None,
    seed: int | None,
) -> optuna.Study:
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if sampler is None and seed is not None:
        sampler = seeded_sampler(seed)
    several = None if isinstance(direction, str) else list(direction)
    return optuna.create_study(
        storage=storage,
        sampler=sampler,
        pruner=pruner,
        study_name=name,
        direction=direction if isinstance(direction, str) else None,
        directions=several,
        load_if_exists=True,
    )


def _run_trials(objective: Objective, team: Team, at: int, progress: Progress) -> None:
    with contextlib.suppress(RefusedError):  # the end of the search tells all ranks of it
        while (number := team.ask("next", at)) is not None:
            outcomes = team.end_trial(_outcome(objective, Trial(number, team)))
            team.ask("end", number, outcomes)
            progress.count()
    team.leave()


def _outcome(objective: Objective, trial: Trial) -> dict[str, Any]:
    """How the objective ended on this rank. Raises HorovodInternalError where the job is over."""
    try:
        value = objective(trial)
        values: list[Any] = list(value) if isinstance(value, Sequence) else [value]
        return {"value": [float(each) for each in values if each is not None]}
    except TrialPruned:
        return {"pruned": True}
    except Exception as error:
        if isinstance(error, HorovodInternalError) and not isinstance(error, TensorMismatchError):
            raise
        if type(error).__name__ == "TrialPruned":  # that of Optuna
            return {"pruned": True}
        follows = isinstance(error, TeamError | TensorMismatchError)
        return {"error": "".join(traceback.format_exception(error)), "follows": follows}
