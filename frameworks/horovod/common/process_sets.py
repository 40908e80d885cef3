"""Groups of ranks that collectives run over. Today there is one: all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod import _core


class ProcessSet:
    """A set of ranks, in ascending order.

    ``ranks`` is None and ``process_set_id`` is None until the set is known to the engine; ``size()``,
    ``rank()`` and ``included()`` return None until then.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        try:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)
        except TypeError:
            self.mpi_comm = ranks_or_comm

    def _active(self) -> bool:
        return self.process_set_id is not None and _core.is_initialized()

    def size(self) -> int | None:
        """How many ranks the set has."""
        return len(self.ranks) if self._active() and self.ranks is not None else None

    def rank(self) -> int | None:
        """This process's position in the set; None when it is not part of it."""
        if not self._active() or self.ranks is None:
            return None
        me = _core.topology()[0]
        return self.ranks.index(me) if me in self.ranks else None

    def included(self) -> bool | None:
        """Whether this process is part of the set."""
        if not self._active() or self.ranks is None:
            return None
        return _core.topology()[0] in self.ranks

    def __repr__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )


def _make_global() -> ProcessSet:
    process_set = ProcessSet([])
    process_set.process_set_id = 0
    process_set.ranks = None
    return process_set


global_process_set = _make_global()
"""All ranks of the job; ``ranks`` is filled in by ``init``."""


def check_process_set(process_set: ProcessSet) -> None:
    """Raises unless operations can run over ``process_set``."""
    if process_set is global_process_set:
        return
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, not {type(process_set).__name__}")
    raise ValueError(
        f"{process_set} is not registered with this job; "
        "only hvd.global_process_set is available in this version"
    )
