"""What would come back in each generation for ever ends an elastic job, with the reason."""

import re
import sys

import pytest
from launch import Launcher, Result

from horovod.elastic.driver.progress import FRUITLESS

PROGRAM = """
import sys
from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects, operations
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState

hvd.init()

def fail():
    if hvd.rank() == 1:
        sys.exit(3)

def stall():
    operations.allreduce_(bytearray(64), op=1, name=f"of rank {hvd.rank()}")

@run_fn
def train(state):
    while True:
        if state.step == 5:
            {"fail": fail, "stall": stall}[sys.argv[1]]()
        operations.allreduce_(bytearray(64), op=1, name="step")
        state.step += 1
        state.commit()

train(ObjectState(objects.broadcast_object, hvd.rank, step=0))
"""
REASON = f"{FRUITLESS} generations in a row have ended without a new commit; what ended them comes back"


def trained(fault: str, **settings: str) -> Result:
    """A job of two ranks, whose host is not set aside for long."""
    options = ["-np", "2", "--min-np", "2", "--blacklist-cooldown-range", "0.1", "0.1"]
    job = Launcher()
    program = [sys.executable, "-c", PROGRAM, fault]
    result = job.finish(job.start(*options, *program, OMP_NUM_THREADS="1", **settings), 60)
    job.wait_until_gone(5)
    return result


def check(result: Result, status: int) -> None:
    assert result.returncode == status and REASON in result.output, result.output
    generations = re.findall(r"^horovodrun: generation (\d+): 2 ranks", result.output, re.MULTILINE)
    assert list(map(int, generations)) == list(range(2, FRUITLESS + 2))


def test_a_rank_that_always_fails_at_the_same_step() -> None:
    result = trained("fail")
    check(result, 3)
    assert "rank 1 (localhost) failed with exit status 3" in result.output


@pytest.mark.slow
def test_a_deadlock_of_the_program() -> None:
    """Its ranks live, and say nothing of it: the launcher does."""
    result = trained("stall", HOROVOD_STALL_DEADLOCK_TIME_SECONDS="1")
    check(result, 1)
    said = re.findall(r"^horovodrun: generation (\d+) has ended: .*of rank 0", result.output, re.MULTILINE)
    assert list(map(int, said)) == list(range(1, FRUITLESS + 1)), result.output
