"""The job behind the process groups: the one that runs already, or one that is started for the first group.

The members of a group that is made beside another default group, or of a default group that has a part of the
ranks of the job, tell each other by the group's store which ranks of the job they are.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from horovod.common import basics

ABSENT = -1
_starts = itertools.count(1)
_start = 0
_members: list[int] = []  # see ``members``
_groups = 0  # that have entered


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
    """By rank in the job of the process groups, the rank in the default group; ABSENT: it is not known to be
    in a group. Empty: there is no job.
    """
    return _members if basics.is_initialized() else ()


def enter(rank: int, size: int, members: Sequence[int], store: Any) -> None:
    """Sees to it that the ranks of a group are in one job, and known in it, until ``leave``: starts the job,
    or finds out who they are in the one that runs. All of them call it.

    Args:
        rank: of this process in the group.
        size: of the group.
        members: by rank in the group, the rank in the default group.
        store: of torch.distributed, where they meet.

    Raises:
        ValueError: they are not in one job, though some have joined one.
        RuntimeError: the ranks do not come together.
    """
    global _groups
    _meet(rank, size, members, store)
    _groups += 1


def _meet(rank: int, size: int, members: Sequence[int], store: Any) -> None:
    """Also where this rank knows all of them from other groups: the others may not have been in those, and
    cannot tell whether it comes.
    """
    global _start
    if not _members:
        _start = next(_starts)
    among = hashlib.sha256(repr(list(members)).encode()).hexdigest()[:16]
    shared = TorchStore(store) if _is_shared(store) else None
    places = basics.lend(rank, size, shared, f"horovod/{among}/{turn_of(rank, among, store)}")
    if not _members:
        _members[:] = [ABSENT] * basics.size()
    for place, member in zip(places, members, strict=True):
        _members[place] = member


def turn_of(rank: int, what: str, store: Any) -> int:
    """How often ``rank`` has come to ``what`` in this store. It is the same on all ranks, as all of them
    come, and tells the keys of one time from those of the next: a store may outlive the jobs that meet in it,
    and some ranks may have met others in another store before.
    """
    return int(store.add(f"horovod/turns/{what}/{rank}", 1))


def start() -> int:
    """How often process groups have begun in this process."""
    return _start


def leave() -> None:
    """Ends what ``enter`` began for one group. With the last one the job ends, unless the program has called
    ``hvd.init``.
    """
    global _groups
    if _groups == 0:  # the program has ended the job while the group was being made
        return
    _groups -= 1
    if _groups == 0:
        _members.clear()
        basics.give_back()


def _is_shared(store: Any) -> bool:
    """Whether other processes can write to it."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return not isinstance(store, dist.HashStore)


def _forget() -> None:
    """Where the program ends the job, with hvd.shutdown(), the next one has other ranks."""
    global _groups
    _groups = 0
    _members.clear()


basics.on_shutdown(_forget)
