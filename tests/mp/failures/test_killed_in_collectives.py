"""A rank is killed in the middle of each collective: all survivors raise within a second, and name it."""

import os
import random
import re
import signal
import time

import pytest
from load import within
from trial import Trial

TIMES = 50 if os.environ.get("HVD_TEST_FULL") else 1
RANKS, VICTIM = 3, 1
# Chunks that a rank works on in the first two rounds of 16 MiB, at least.
CHUNKS = 20


def kill_once(kind: str, transport: str, chunk: int, ranks: int = RANKS) -> float:
    """Returns how many seconds after the kill the last survivor raised."""
    env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_FAILPOINT": f"chunk@{chunk}:rank{VICTIM}:stop"}
    job = Trial(ranks, "endless:repeat", kind, env=env)
    try:
        job.wait_for(rf"failpoint chunk@{chunk} on rank {VICTIM}")
        job.kill(job.pids()[VICTIM])
        job.must_end(128 + signal.SIGKILL, rf"rank {VICTIM} .*killed by SIGKILL")
        job.must_be_clean()
        assert job.fault_at is not None
        failed = re.findall(rf"rank (\d+) failed at ([\d.]+): .*rank {VICTIM}\b", job.output)
        assert {int(rank) for rank, _ in failed} == set(range(ranks)) - {VICTIM}, job.output
        return max(float(when) for _, when in failed) - job.fault_at
    finally:
        job.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    "kind", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "adasum"]
)
def test_survivors_raise_within_a_second(kind: str, transport: str) -> None:
    dice = random.Random(f"{kind} {transport}")
    for _ in range(TIMES):
        begin = time.monotonic()
        chunk = dice.randrange(1, CHUNKS)
        seconds = kill_once(kind, transport, chunk)
        assert seconds < within(1.0), (chunk, seconds, time.monotonic() - begin)


def test_survivors_without_a_link_to_the_victim_raise_too() -> None:
    assert kill_once("allreduce", "shm", 3, ranks=20) < within(1.0)
