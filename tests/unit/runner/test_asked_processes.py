"""Which processes of a rank get a signal that asks it to end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from horovod.runner.nodes import guard

# Writes its own number and that of a child, which it has forked.
_PARENT = """
import os, signal, time
if {handles}:
    signal.signal(signal.SIGTERM, lambda *_: None)
child = os.fork()
if child:
    os.write(1, b"%d %d\\n" % (os.getpid(), child))
time.sleep(60)
"""


@contextmanager
def group(*command: str) -> Iterator[tuple[int, list[int]]]:
    """A process group, and the two processes that it tells of."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        told = [int(word) for word in process.stdout.readline().split()]
        yield process.pid, told
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("has_shell", [True, False])
def test_what_is_below_a_handler_is_left_to_it(handles: bool, has_shell: bool) -> None:
    words = [sys.executable, "-c", _PARENT.format(handles=handles)]
    if has_shell:
        words = ["sh", "-c", '"$@"; true', "sh", *words]
    with group(*words) as (leader, (parent, child)):
        found = guard.in_groups({leader})
        assert found == {leader, parent, child} and (leader != parent) is has_shell
        assert guard.to_ask(found, signal.SIGTERM) == found - ({child} if handles else set())
        assert guard.to_ask(found, signal.SIGUSR2) == found
