"""What this process has to say of its training when it leaves the job, and that it exchanged nothing, if so.

horovodrun shows it at the end of the job, behind all output; see ``bootstrap.store.remarks``.
"""

from __future__ import annotations

import contextlib
import os
import sys

from horovod import _core

_texts: list[str] = []
_has_run = False  # has submitted a collective or a message, in any job of this process
_has_reduced = False
_has_broadcast = False
_at_start = 0  # operations of the start itself
_was_told = False


def tell(text: str) -> None:
    """Keeps one line for the end of the job."""
    _texts.append(text)


def parameters_are_broadcast() -> None:
    """The program makes its parameters equal, as one does to train."""
    global _has_broadcast
    _has_broadcast = True


def begin() -> None:
    """``hvd.init()`` has joined a job."""
    global _at_start
    _at_start = _announced(_core.counters())


def end() -> None:
    """``hvd.shutdown()`` is about to leave it. Costs nothing where there is nothing to say."""
    global _has_run, _has_reduced, _was_told
    counted = _core.counters()
    _has_run = _has_run or _announced(counted) > _at_start or counted["messages"] > 0
    _has_reduced = _has_reduced or counted["reductions"] > 0
    rank, size = _core.topology()[:2]
    has_failed = hasattr(sys, "last_value") or sys.exc_info()[0] is not None
    if size == 1 or has_failed:
        return
    has_reduced_nothing = _has_broadcast and not _has_reduced
    if not (_texts or _was_told or has_reduced_nothing or not _has_run):
        return
    _was_told = True
    from horovod.bootstrap.store.remarks import Remark  # late: most jobs have nothing to say

    with contextlib.suppress(OSError, RuntimeError, ValueError):  # no launcher that hears it any more
        _send(Remark(not _has_run, has_reduced_nothing, _texts), rank, size)


def _announced(counted: dict[str, int]) -> int:
    """Operations, also those that have failed."""
    return counted["cache_hits"] + counted["cache_misses"]


def _send(remark: object, rank: int, size: int) -> None:
    from horovod.bootstrap import identity, start
    from horovod.bootstrap.store import remarks
    from horovod.bootstrap.text import log

    assert isinstance(remark, remarks.Remark)
    if start.communicator() is not None:
        return
    if identity.from_environment(os.environ).launcher == identity.HOROVODRUN:
        with start.launchers_store() as store:
            store.set(f"{remarks.PREFIX}{rank}", remark.encode())
    elif rank == 0 and remark.is_idle:
        log("warning", rank, remarks.idle(size))
    elif rank == 0 and remark.has_reduced_nothing:
        log("warning", rank, remarks.REDUCED_NOTHING)
