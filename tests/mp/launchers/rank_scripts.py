"""Small scripts as ranks, which know nothing of horovod, and what the tests read of them."""

import subprocess
import sys
import time
from collections.abc import Callable

from load import within


def rank_script(script: str) -> list[str]:
    """The command of a rank that knows its ``rank``."""
    preamble = "import os, sys, time, signal\nrank = int(os.environ['HOROVOD_RANK'])\n"
    return [sys.executable, "-u", "-c", preamble + script]


def read_until(process: subprocess.Popen[bytes], needle: bytes, count: int = 1) -> bytes:
    """The output up to the line in which ``needle`` is found for the ``count``-th time."""
    assert process.stdout is not None
    text = b""
    while text.count(needle) < count:
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def until(condition: Callable[[], bool], found: Callable[[], object]) -> None:
    """Waits for a condition; ``found`` says what is so instead."""
    deadline = time.monotonic() + within(5)
    while not condition():
        assert time.monotonic() < deadline, found()
        time.sleep(0.02)


def lines_of(rank: int, stream: str, output: bytes) -> list[bytes]:
    """What a rank has written on a stream, without the prefix."""
    prefix = f"[{rank}]<{stream}>:".encode()
    return [line.removeprefix(prefix) for line in output.splitlines(keepends=True) if line.startswith(prefix)]
