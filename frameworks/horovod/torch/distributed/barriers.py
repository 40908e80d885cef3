"""Barriers: one of the core, and one that names the ranks that do not come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from horovod import _core
from horovod.torch.distributed import world
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import CollectiveTimeoutError

_DONE = b"done"
_GRACE_SECONDS = 5.0  # in which rank 0 tells the others


def barrier(communicator: Communicator, options: Any) -> Any:
    """Is complete when every rank of the group has started it."""
    return communicator.start(_core.BARRIER, (), options)


def monitored_barrier(communicator: Communicator, store: Any, seconds: float, wait_all_ranks: bool) -> None:
    """Returns when every rank of the group has called it. By the group's store, not the core: a rank that
    hangs in a collective does not disturb it.

    Args:
        communicator: of the group.
        store: of the group.
        seconds: how long rank 0 waits for the others.
        wait_all_ranks: it names all that do not come, not the first one.

    Raises:
        CollectiveTimeoutError: on rank 0, naming the ranks that have not come; on the others when rank 0 has
            not come, or has given up.
        DistBackendError: the store is gone, as with the process that keeps it.
    """
    number = next(communicator.monitored)
    prefix = f"monitored_barrier/{world.start()}/{number}"
    try:
        if communicator.rank == 0:
            _await_others(communicator, store, prefix, seconds, wait_all_ranks)
        else:
            _await_first(communicator, store, prefix, seconds)
    except dist.DistNetworkError as error:
        raise dist.DistBackendError(
            f"Rank {communicator.rank} cannot learn who has come to monitored_barrier of process group "
            f"{communicator.name!r}: the store of the group is gone. Look at the process that keeps it, rank "
            "0 where torch.distributed has made it."
        ) from error


def _await_first(communicator: Communicator, store: Any, prefix: str, seconds: float) -> None:
    store.set(f"{prefix}/{communicator.rank}", _DONE)
    verdict = b"Rank 0 has not come"
    if _has_come(store, f"{prefix}/0", time.monotonic() + seconds + _GRACE_SECONDS):
        verdict = store.get(f"{prefix}/0")
    if verdict != _DONE:
        raise CollectiveTimeoutError(
            f"Rank {communicator.rank} timed out in monitored_barrier of process group {communicator.name!r} "
            f"after {seconds:g} s: {verdict.decode()}."
        )


def _await_others(
    communicator: Communicator, store: Any, prefix: str, seconds: float, wait_all_ranks: bool
) -> None:
    deadline = time.monotonic() + seconds
    absent = []
    for rank in range(1, communicator.size):
        if not _has_come(store, f"{prefix}/{rank}", deadline):
            absent.append(rank)
            if not wait_all_ranks:
                break
    if not absent:
        store.set(f"{prefix}/0", _DONE)
        return
    several = "s" if len(absent) > 1 else ""
    text = f"Rank{several} {', '.join(map(str, absent))} failed to pass monitoredBarrier"
    store.set(f"{prefix}/0", text)
    raise CollectiveTimeoutError(
        f"{text} of process group {communicator.name!r}: Rank 0 timed out in monitoredBarrier after "
        f"{seconds:g} s."
    )


def _has_come(store: Any, key: str, deadline: float) -> bool:
    try:
        store.wait([key], timedelta(seconds=max(0.001, deadline - time.monotonic())))
    except dist.DistNetworkError:  # not a matter of time
        raise
    except RuntimeError:
        return False
    return True
