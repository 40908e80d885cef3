"""What the limits of a process leave of a start: too few descriptors, and files that may be too small."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from horovod.bootstrap import descriptors
from horovod.bootstrap.errors import BootstrapError


@pytest.fixture
def room() -> Iterator[int]:
    """As many descriptors as a start of two ranks takes are left, and not one more: the limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(before[0]) if number not in in_use][:12]
    limit = free[-1] + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_enough_is_enough(room: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    descriptors.check(3, 0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_too_few_name_the_limit_and_the_remedy(room: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BootstrapError, match=f"rank 3 cannot start: .* {room:,} open files.*ulimit -n 4096"):
        descriptors.check(3, 5)
    assert len(os.listdir("/proc/self/fd")) == before


PROGRAM = """
import resource, signal
from horovod.bootstrap.shared_memory import shared_memory_refusal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
assert shared_memory_refusal(2) is None
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
print(shared_memory_refusal(2))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
print(shared_memory_refusal(2))
"""


def test_files_that_may_be_too_small_are_no_shared_memory() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    small, none = done.stdout.splitlines()
    assert "no file may have more than 1,048,576 bytes, and 2 ranks share one of" in small
    assert "ulimit -f unlimited" in small and "more than 0 bytes" in none
