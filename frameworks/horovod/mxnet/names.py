"""Names for operations that the program has not named.

MXNet's engine starts operations in an order of its own, so the core cannot count them; they are counted here,
where the program calls them.
"""

from __future__ import annotations

import threading
from collections import Counter

from horovod.common import basics

_lock = threading.Lock()
_counts: Counter[tuple[str, int]] = Counter()


def numbered(kind: str, process_set: int = 0) -> str:
    """The next name of this kind on a process set: the same on all ranks that call in one order."""
    with _lock:
        _counts[kind, process_set] += 1
        return f"mxnet.{kind}.{_counts[kind, process_set]}"


def count_from_the_start() -> None:
    """When the ranks have counted differently, or will not go on together."""
    with _lock:
        _counts.clear()


basics.on_shutdown(count_from_the_start)
