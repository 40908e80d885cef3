"""What ranks do in the cases of the layers "resources" and "input and security"."""

import os
import subprocess
import sys
import time

import plain
from plain import Memory, allreduce, right, start, steps

from horovod.common import basics as hvd


def work(seconds: str) -> None:
    """Steps for some seconds, and a large one now and then."""
    rank = start()
    begin = time.monotonic()
    while allreduce("go on", Memory(1, float(rank > 0 or time.monotonic() - begin < float(seconds)))).is_all(
        hvd.size()
    ):
        steps(20)
        assert allreduce("large", Memory(300_000)).is_all(hvd.size())
    right()
    hvd.shutdown()


def talk(lines: str) -> None:
    """Steps, and output for the log files."""
    start()
    for _ in range(int(lines)):
        print("x" * 1000, flush=True)
        steps(1)
    right()
    hvd.shutdown()


def in_a_deleted_folder(folder: str) -> None:
    """The working folder goes while the job runs."""
    start()
    os.chdir(folder)
    steps(1)  # now all are there
    if hvd.rank() == 0:
        os.rmdir(folder)
    steps(50)
    right()
    hvd.shutdown()


def started_child() -> None:
    """A child of every rank waits beside it."""
    start()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
    steps(10**9, pause=0.002)
    child.wait()


if __name__ == "__main__":
    plain.main(globals())
