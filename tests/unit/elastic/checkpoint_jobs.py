"""Trainings of one rank in this process that are written to a folder and go on from it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from horovod.elastic.checkpoint import history, layout
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState


def object_state(**values: Any) -> ObjectState:
    return ObjectState(lambda value, root=0: value, lambda: 0, **values)


def weights_at(step: int) -> np.ndarray:
    return np.random.default_rng(step).standard_normal(500)


def new_state() -> ObjectState:
    return object_state(step=0, weights=weights_at(0), log=[])


class Stopped(Exception):
    """The training ends as a process does that is killed: nothing more is written."""


def train(folder: Path, steps: int, ends: bool = True, **options: Any) -> tuple[int, ObjectState]:
    """Goes on to so many steps; each is on disk before the next. Returns where it began, and the state."""
    began: list[int] = []

    def loop(state: ObjectState) -> None:
        began.append(state.step)
        assert state.weights.tobytes() == weights_at(state.step).tobytes()
        while state.step < steps:
            state.record(step=state.step, loss=1 / (1 + state.step))
            state.step += 1
            state.weights = weights_at(state.step)
            state.commit()
            wait(state)
        if not ends:
            state.record(step="lost")
            raise Stopped

    state = new_state()
    with contextlib.nullcontext() if ends else contextlib.suppress(Stopped):
        run_fn(loop, checkpoints=Options(str(folder), **{"commits": 1, "keep": 3, **options}))(state)
    return began[0], state


def wait(state: ObjectState) -> None:
    """Until nothing is being written."""
    durability = state.durability
    if durability is not None and durability._writer is not None:
        durability._writer.wait()


def names(folder: Path) -> list[str]:
    """Of the complete checkpoints, newest first."""
    return layout.complete(os.listdir(folder))


def steps_of(folder: Path) -> list[Any]:
    """That the history has."""
    return [line["step"] for line in history.decode((folder / layout.HISTORY).read_bytes())]
