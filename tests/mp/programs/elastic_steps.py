"""Elastic training without a framework: counts steps, each an allreduce and a commit. One worker may die, or
(PHASE always) whoever has its number as a rank.

Usage: elastic_steps.py STEPS [PHASE WORKER [BYTES [SECONDS]]]. PHASE says when WORKER kills itself, BYTES how
much each step reduces, SECONDS how long a step takes. Lines tell what happens, with the time of a clock that
all processes of this machine share.
"""

import os
import random
import signal
import sys
import threading
import time

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState

STEPS = int(sys.argv[1])
PHASE, VICTIM = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 3 else ("never", -1)
BYTES = int(sys.argv[4]) if len(sys.argv) > 4 else 64
SECONDS = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
WORKER = int(os.environ["HOROVOD_ELASTIC_WORKER"])
LOG = os.environ.get("HVD_TEST_LOG")
AT_STEP = 5
SUM = 1


def tell(*words: object) -> None:
    line = " ".join(map(str, [*words, f"worker {WORKER} at {time.monotonic():.4f}"]))
    if LOG:  # for who wants to know it although nobody reads the output
        with open(LOG, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    else:
        print(line, flush=True)


def die() -> None:
    tell("dies")
    os.kill(os.getpid(), signal.SIGKILL)


def may_die(phase: str, within: float | None = None) -> None:
    """Now, or at a random moment of the next seconds."""
    if phase == PHASE and WORKER == VICTIM:
        if within is None:
            die()
        else:
            threading.Timer(random.uniform(0, within), die).start()


class Steps(ObjectState):
    def sync(self) -> None:
        may_die("sync", 0.002)
        super().sync()

    def save(self) -> None:
        super().save()
        if self.step == AT_STEP:
            may_die("commit")

    def reset(self) -> None:
        may_die("reset")


may_die("before")
may_die("rendezvous", 0.05)
hvd.init()


@run_fn
def train(state: Steps) -> None:
    is_new = True
    while state.step < STEPS:
        if state.step == AT_STEP:
            may_die("step")
            may_die("inside", 0.03)
            if PHASE == "reset" and hvd.size() == 4 and WORKER == (VICTIM + 1) % 4:
                die()
        if PHASE == "always" and hvd.rank() == VICTIM:
            die()
        total = operations.allreduce_(bytearray(b"\1") * BYTES, op=SUM, name="step")
        assert total == bytearray([hvd.size()]) * BYTES, total[:8]
        state.step += 1
        state.commit()
        if is_new:
            tell(f"trains as rank {hvd.rank()} of {hvd.size()} step {state.step}")
            is_new = False
        time.sleep(SECONDS)


state = Steps(objects.broadcast_object, hvd.rank, step=0)
try:
    train(state)
except SystemExit as end:
    tell(f"leaves with status {end.code} step {state.step}")
    raise
tell(f"has done {state.step} steps as rank {hvd.rank()} of {hvd.size()}")
may_die("shutdown", 0.002)
hvd.shutdown()
