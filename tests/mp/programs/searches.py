"""A search on small trials. Arguments: ranks of a trial, trials, the journal, and what happens:
"raise" (on one rank of a trial, and a study that fails), "end" (all of the job, in the middle).
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from horovod import search
from horovod.common.collective import exports
from horovod.common.collective.byte_objects import operations

ranks, count, journal, what = sys.argv[1:]
hvd: Any = SimpleNamespace(**{**vars(exports), **vars(search)})  # as an adapter has it
hvd.init()


def objective(trial: search.Trial) -> float:
    """A parabola; the trials 4 and 5 are those to which something happens."""
    x = trial.suggest_float("x", -3.0, 3.0)
    kind = trial.suggest_categorical("kind", ["a", None, 2])
    is_last = hvd.rank() == trial.process_set.ranks[-1]
    for step in range(4):
        operations.barrier(trial.process_set)
        if what == "raise" and trial.number == 4 and step == 2 and is_last:
            raise RuntimeError("planted")
        killed = Path(f"{journal}.killed")
        if what == "end" and trial.number == 5 and step == 2 and is_last and not killed.exists():
            killed.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        if what == "raise" and trial.number == 8 and step == 1:
            trial.suggest_float("x", -3.0, 3.0) if is_last else trial.should_prune()
        trial.report((x - 1) ** 2 + step, step)
        if what == "raise" and trial.number == 6 and step == 1:
            raise hvd.TrialPruned
    return (x - 1) ** 2 + (kind == "a") + 0.001 * trial.process_set.rank()


result = hvd.search(objective, int(count), int(ranks), storage=journal, seed=7)
if hvd.rank() == 0:
    print(json.dumps({"best": result.best_value, "trials": result.trials}), flush=True)
if what == "raise":
    from optuna.storages import InMemoryStorage

    class Full(InMemoryStorage):
        """A disk on which there is no room for the end of the third trial."""

        left = 2

        def set_trial_state_values(self, trial_id: int, state: Any, values: Any = None) -> bool:
            """Of Optuna."""
            Full.left -= state.is_finished()
            if Full.left < 0:
                raise OSError("no room")
            return super().set_trial_state_values(trial_id, state, values)

    class FullForReports(InMemoryStorage):
        """Without room for a report, of which half may have been written."""

        def set_trial_intermediate_value(self, trial_id: int, step: int, value: float) -> None:
            """Of Optuna."""
            raise OSError("no room")

    def reports(trial: search.Trial) -> float:
        """A trial that bears it."""
        with contextlib.suppress(ValueError):
            trial.report(1.0, 0)
        return trial.suggest_float("x", 0, 1)

    for storage in (Full(), FullForReports(), None):  # a search that has failed disturbs no other one
        try:
            result = hvd.search(reports, 4, [1, 2, 1], storage=storage)
            print(f"trials: {len(result.trials)}", flush=True)
        except ValueError as error:
            print(error, flush=True)
try:
    hvd.search(objective, 1, hvd.size() + 1)
except ValueError as error:
    assert "a trial needs at least one" in str(error)
