"""Elastic training without a framework: counts steps, each an allreduce and a commit. Some workers may die,
or (PHASE always) whoever has such a number as a rank; with PHASE late one starts late.

Usage: elastic_steps.py STEPS [PHASES WORKERS [BYTES [SECONDS]]]. PHASES says when each of WORKERS kills
itself, with commas between several; BYTES how much each step reduces, SECONDS how long a step takes. Lines
tell what happens, with the time of a clock that all processes of this machine share.
"""

import multiprocessing
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
PHASES, VICTIMS = sys.argv[2:4] if len(sys.argv) > 3 else ("never", "-1")
DEATHS = dict(zip(map(int, VICTIMS.split(",")), PHASES.split(","), strict=True))
BYTES = int(sys.argv[4]) if len(sys.argv) > 4 else 64
SECONDS = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
WORKER = int(os.environ["HOROVOD_ELASTIC_WORKER"])
LOG = os.environ.get("HVD_TEST_LOG")
HAS_HELPER = "HVD_TEST_HELPER" in os.environ  # a process that each worker needs for its steps
AT_STEP = 5
SUM = 1
RECOVERY = (0.0, 0.1)  # seconds after an error in which a recovery is under way,
NEXT_RECOVERY = (0.1, 0.3)  # and another one, from a death in the first
AHEAD = 3  # the worker that is a commit ahead of the others, with the phase "ahead"


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


def may_die(phase: str, within: tuple[float, float] | None = None) -> None:
    """Now, or at a random moment of those seconds from now on."""
    if DEATHS.get(WORKER) == phase:
        if within is None:
            die()
        else:
            threading.Timer(random.uniform(*within), die).start()


class Steps(ObjectState):
    newest = 0  # the step of the last commit

    def sync(self) -> None:
        may_die("sync", (0.0, 0.002))
        super().sync()

    def save(self) -> None:
        super().save()
        type(self).newest = max(self.newest, self.step)
        if self.step == AT_STEP:
            may_die("commit")

    def restore(self) -> None:
        super().restore()
        may_die("recovery", RECOVERY)
        may_die("next recovery", NEXT_RECOVERY)

    def reset(self) -> None:
        may_die("reset")


def reduce(name: str) -> None:
    total = operations.allreduce_(bytearray(b"\1") * BYTES, op=SUM, name=name)
    assert total == bytearray([hvd.size()]) * BYTES, total[:8]


may_die("before")
if DEATHS.get(WORKER) == "late":  # it lives, and is not there before the others have gone on
    time.sleep(1.0)
may_die("rendezvous", (0.0, 0.05))
hvd.init()


@run_fn
def train(state: Steps) -> None:
    is_new = True
    helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    if HAS_HELPER:
        helper.start()
    if state.step < state.newest:
        tell(f"has lost step {state.newest} and is at {state.step}")
    while state.step < STEPS:
        if state.step == AT_STEP:
            may_die("step")
            may_die("inside", (0.0, 0.03))
        if "always" in DEATHS.values() and hvd.rank() in DEATHS:
            die()
        reduce("step")
        state.step += 1
        if state.step == AT_STEP and "ahead" in DEATHS.values() and WORKER != AHEAD:
            time.sleep(0.1)
            may_die("ahead")
            reduce("of those that do not commit")
        if HAS_HELPER and not helper.is_alive():
            raise RuntimeError("the helper is gone")
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
may_die("shutdown", (0.0, 0.002))
hvd.shutdown()
