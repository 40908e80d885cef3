"""The job behind the process groups: the one that runs already, or one that is started for the first
group."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from horovod.common import basics

_starts = itertools.count(1)
_start = 0
_members: list[int] = []  # by rank in the job, the rank in the default group


class TorchStore:
    """A store of torch.distributed, as the start of the core uses it (see ``bootstrap.given.GivenStore``)."""

    name = "the store of torch.distributed"

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: str) -> None:
        """See GivenStore."""
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> str | None:
        """See GivenStore."""
        try:
            self._store.wait([key], timedelta(seconds=timeout))
        except RuntimeError:
            if not self._store.check([key]):
                return None
        value: bytes = self._store.get(key)
        return value.decode(errors="replace")


def members() -> Sequence[int]:
    """By rank in the job of the process groups, the rank in the default group; empty: there is no job."""
    return _members if basics.is_initialized() else ()


def enter(rank: int, size: int, members: Sequence[int], store: Any) -> None:
    """Makes this process rank ``rank`` of a job of ``size`` ranks, unless it is so already. All of them call
    it.

    Args:
        rank: of this process in the job.
        size: of the job.
        members: by rank in the job, the rank in the default group.
        store: of torch.distributed, where they meet.

    Raises:
        ValueError: it is another rank, of a job that it has joined before.
        RuntimeError: the ranks do not come together.
    """
    global _start
    _start = next(_starts)
    basics.lend(rank, size, TorchStore(store), f"horovod/{_start}")
    _members[:] = members


def start() -> int:
    """How often process groups have begun in this process, which is the same on all ranks: it tells the keys
    of one job in a store from those of the next, as a store may outlive the jobs that meet in it.
    """
    return _start


def leave() -> None:
    """Ends what ``enter`` began; the job goes on if the program has called ``hvd.init``."""
    _members.clear()
    basics.give_back()
