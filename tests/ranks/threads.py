"""The threads of this process, while others of them end."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

_EXITING = 0x4  # PF_EXITING of Linux


def names() -> Counter[str]:
    """How many threads have each name. One may end between two looks, as those of a framework's pool do."""
    counted: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            counted[(task / "comm").read_text().strip()] += 1
    return counted


def live() -> int:
    """How many there are, without those that were joined and are still listed for a moment."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            flags = int((task / "stat").read_text().rpartition(")")[2].split()[6])
            count += not flags & _EXITING
    return count
