"""A search of which one rank is killed, once.

Arguments: the journal, the rank, "before" or "after", and what: a question to the study ("next", "suggest",
"report", "should_prune", "end"), "end_trial" or "leave" of a team, "answer" or "results" (rank 0 sends them),
or "nothing".
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from horovod import search
from horovod.common.collective import exports
from horovod.search import calls, team

journal, rank, *place = sys.argv[1:]
hvd: Any = SimpleNamespace(**{**vars(exports), **vars(search)})  # as an adapter has it
hvd.init()
FIRST = 3  # the trial of this rank in which it is killed
begun = 0


def reached(*here: str) -> None:
    """Kills this process where the arguments say so."""
    killed = Path(f"{journal}.killed")
    if begun >= FIRST and hvd.rank() == int(rank) and list(here) == place and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def watched(inner: Callable[..., Any], label: Callable[..., str]) -> Callable[..., Any]:
    """``inner``, with a place before and one after it."""

    def call(*arguments: Any) -> Any:
        global begun
        name = label(*arguments)
        begun += name == "next"
        reached("before", name)
        result = inner(*arguments)
        reached("after", name)
        return result

    return call


def kind_of(content: Any, target: int, tag: int, data_tag: int) -> str:
    """What rank 0 sends; the results go to rank 1 first."""
    return {calls._ANSWER: "answer", calls._END: "results"}.get(tag, "") if target != 1 else ""


Team = team.Team
Team.ask = watched(Team.ask, lambda self, name, *arguments: name)  # type: ignore[method-assign]
Team.end_trial = watched(Team.end_trial, lambda *arguments: "end_trial")  # type: ignore[method-assign]
Team.leave = watched(Team.leave, lambda *arguments: "leave")  # type: ignore[method-assign]
calls._send = watched(calls._send, kind_of)


def objective(trial: search.Trial) -> float:
    """A parabola, of which some trials are pruned."""
    x = trial.suggest_float("x", -3.0, 3.0)
    for step in range(3):
        trial.report((x - 1) ** 2, step)
        if trial.should_prune():
            raise hvd.TrialPruned
    return (x - 1) ** 2


result = hvd.search(objective, 12, 2, storage=journal, seed=7)
if hvd.rank() == 0:
    print(json.dumps({"best": result.best_value, "trials": result.trials}), flush=True)
