"""Barriers: one of the core, and one that names the ranks that do not come."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist

from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.distributed import world
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import CollectiveTimeoutError

_DONE = b"done"
_GRACE_SECONDS = 5.0  # in which rank 0 tells the others
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.0005, 0.05  # between two looks at the store
_VERDICT_SECONDS = 1.0  # in which the job says why a rank is gone that has kept the store


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
        HorovodInternalError: a rank of the job is gone.
        DistBackendError: the store is gone, as with the process that keeps it.
    """
    try:
        communicator.check_health()
        turn = world.turn_of(communicator.rank, "monitored_barrier", store)
        prefix = f"monitored_barrier/{turn}"
        if communicator.rank == 0:
            _await_others(communicator, store, prefix, seconds, wait_all_ranks)
        else:
            _await_first(communicator, store, prefix, seconds)
    except HorovodInternalError as error:
        raise HorovodInternalError(
            f"monitored_barrier of process group {communicator.name!r} was not completed: {error}"
        ) from None
    except dist.DistNetworkError as error:
        raise dist.DistBackendError(
            f"Rank {communicator.rank} cannot learn who has come to monitored_barrier of process group "
            f"{communicator.name!r}: the store of the group is gone. Look at the process that keeps it, rank "
            "0 where torch.distributed has made it."
        ) from error


def _await_first(communicator: Communicator, store: Any, prefix: str, seconds: float) -> None:
    store.set(f"{prefix}/{communicator.rank}", _DONE)
    verdict = b"Rank 0 has not come"
    if _has_come(communicator, store, f"{prefix}/0", time.monotonic() + seconds + _GRACE_SECONDS):
        verdict = store.get(f"{prefix}/0")
    if verdict != _DONE:
        raise CollectiveTimeoutError(
            f"monitored_barrier of process group {communicator.name!r} has failed on rank "
            f"{communicator.rank}, with a timeout of {seconds:g} s: {verdict.decode()}."
        )


def _await_others(
    communicator: Communicator, store: Any, prefix: str, seconds: float, wait_all_ranks: bool
) -> None:
    deadline = time.monotonic() + seconds
    absent = []
    for rank in range(1, communicator.size):
        if not _has_come(communicator, store, f"{prefix}/{rank}", deadline):
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
        f"{seconds:g} s. Look at what they do, for example with py-spy dump."
    )


def _has_come(communicator: Communicator, store: Any, key: str, deadline: float) -> bool:
    """Asks the store again and again: a wait there says much to the log when it takes long."""
    pause = _SHORTEST_PAUSE_SECONDS
    while True:
        try:
            if store.check([key]):
                return True
        except RuntimeError:  # not a matter of time
            _await_cause(communicator)
            raise
        communicator.check_health()
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _await_cause(communicator: Communicator) -> None:
    """Raises HorovodInternalError if a rank is gone: it may have kept the store."""
    until = time.monotonic() + _VERDICT_SECONDS
    while time.monotonic() < until:
        communicator.check_health()
        time.sleep(_LONGEST_PAUSE_SECONDS)
