"""Elastic training without a framework that goes on from a folder. What it has is checked when it begins.

Usage: durable_steps.py STEPS NUMBERS SECONDS [SHARD]. The parameters are NUMBERS random numbers, and each
step adds others, so that those of any step can be computed anew. SECONDS: of a step. SHARD: all ranks write.
"""

import os
import sys
import time

import numpy as np

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
from horovod.elastic.checkpoint import durability, notes
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState

STEPS, NUMBERS, SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
SUM = 1
if len(sys.argv) > 4:
    durability.SHARD_BYTES = 1
    notes.SMALL_BYTES = 4096


def update(step: int, part: int) -> np.ndarray:
    return np.random.default_rng([step, part]).standard_normal(NUMBERS // 4)


def parameters_at(step: int) -> list[np.ndarray]:
    parts = [np.zeros(NUMBERS // 4) for _ in range(4)]
    for number in range(step):
        for part in range(4):
            parts[part] += update(number, part)
    return parts


hvd.init()


def train(state: ObjectState) -> None:
    expected = parameters_at(state.step)
    assert all(mine.tobytes() == other.tobytes() for mine, other in zip(state.parts, expected, strict=True))
    assert state.seen == [(step, f"step {step}") for step in range(state.step)], state.seen
    if hvd.rank() == 0:
        print(f"begins at step {state.step} with {hvd.size()} ranks", flush=True)
    while state.step < STEPS:
        total = operations.allreduce_(bytearray(b"\1") * 64, op=SUM, name="step")
        assert total == bytearray([hvd.size()]) * 64
        for part in range(4):
            state.parts[part] += update(state.step, part)
        state.seen.append((state.step, f"step {state.step}"))
        state.record(step=state.step, size=hvd.size())
        state.step += 1
        state.commit()
        time.sleep(SECONDS)


state = ObjectState(objects.broadcast_object, hvd.rank, step=0, parts=parameters_at(0), seen=[])
folder = os.environ.get("HVD_TEST_FOLDER", "")  # where it is named in the program only
run_fn(train, checkpoints=Options(path=folder, commits=1, keep=2))(state)
print(f"has done {state.step} steps as rank {hvd.rank()} of {hvd.size()} worker {os.getpid()}", flush=True)
hvd.shutdown()
