"""Reduces for ever, and says in a folder who it is, and what ends it: for tests that end it in the middle.
SIGUSR1 has it raise an error of its own, SIGUSR2 has it end well.
"""

import os
import signal
import sys
import time
from pathlib import Path

import plain_horovod as hvd


def tell(name: str, text: str) -> None:
    """A file is there with all its text or not at all."""
    fresh = Path(sys.argv[1], f"new.{hvd.rank()}")
    fresh.write_text(text)
    fresh.rename(Path(sys.argv[1], f"{name}.{hvd.rank()}"))


def fail(*_: object) -> None:
    raise ValueError("of its own")


signal.signal(signal.SIGUSR1, fail)
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
hvd.init()
for step in range(1_000_000):
    try:
        total = hvd.allreduce_(bytearray([hvd.rank() + step % 8] * 1000), op=hvd.Sum, name="x")
    except hvd.HorovodInternalError as error:
        tell("error", str(error))
        raise
    expected = sum(range(hvd.size())) + step % 8 * hvd.size()
    assert total == bytes([expected] * 1000), (step, total[0], expected)
    if step == 3:
        tell("rank", str(os.getpid()))
    time.sleep(0.01)
