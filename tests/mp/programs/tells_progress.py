"""Ranks that say how far they are. Usage: tells_progress.py STEPS SECONDS [SLOW], where the rank SLOW takes
ten times SECONDS for a step and the others SECONDS. Under an elastic job the steps are committed.
"""

import os
import sys
import time

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
from horovod.common.progress import progress
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState

STEPS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
SLOW = int(sys.argv[3]) if len(sys.argv) > 3 else -1


def step(state: ObjectState) -> None:
    time.sleep(SECONDS * (10 if hvd.rank() == SLOW else 1))
    operations.allreduce_(bytearray(64), op=1, name="step")
    state.step += 1
    progress(state.step, steps=STEPS, epoch=state.step // 10, samples=32)


@run_fn
def train(state: ObjectState) -> None:
    while state.step < STEPS:
        step(state)
        state.commit()


hvd.init()
state = ObjectState(objects.broadcast_object, hvd.rank, step=0)
if "HOROVOD_ELASTIC_WORKER" in os.environ:
    train(state)
else:
    while state.step < STEPS:
        step(state)
hvd.shutdown()
