"""A job whose ranks the program tells, with a store by which they tell each other a few bytes: who they are,
and where rank 0 keeps the store of the core.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .errors import BootstrapError, StartTimeoutError
from .identity import Identity
from .sources import TORCH_PROGRAM
from .text import shown

_HOST, _OFFER = "host", "store"


class GivenStore(Protocol):
    """What all ranks can write to and read from. Both raise RuntimeError when it does not answer."""

    @property
    def name(self) -> str:
        """For people."""

    def set(self, key: str, value: str) -> None:
        """Makes ``value`` known."""

    def get(self, key: str, timeout: float) -> str | None:
        """The value, once it is known; None when it is not within ``timeout`` seconds."""


@dataclass(frozen=True)
class GivenJob:
    """This process's place in it. ``key``: what tells its keys in the store from those of earlier jobs."""

    rank: int
    size: int
    store: GivenStore
    key: str

    def identity(self, environ: Mapping[str, str], timeout: float) -> Identity:
        """Who this process is, once all ranks have told their hosts.

        Raises StartTimeoutError, which names the ranks that do not come, and BootstrapError when the store
        does not answer.
        """
        deadline = time.monotonic() + timeout
        own = environ.get("HOROVOD_HOSTNAME") or os.uname().nodename
        try:
            self.store.set(f"{self.key}/{_HOST}/{self.rank}", own)
            hosts = [self._host_of(rank, deadline) for rank in range(self.size)]
        except RuntimeError as error:
            raise self._failure(error) from None
        absent = [rank for rank, host in enumerate(hosts) if host is None]
        if absent:
            raise StartTimeoutError(
                f"rank {self.rank}: the ranks {absent} of {self.size} have not come to {self.store.name} "
                f"within {timeout:g} s",
                absent,
            )
        local = [rank for rank in range(self.size) if hosts[rank] == own]
        hostname = "localhost" if len(local) == self.size else own
        position = local.index(self.rank)
        return Identity(self.rank, self.size, position, len(local), 0, 1, hostname, TORCH_PROGRAM)

    def _host_of(self, rank: int, deadline: float) -> str | None:
        return self.store.get(f"{self.key}/{_HOST}/{rank}", max(0.01, deadline - time.monotonic()))

    def _failure(self, error: RuntimeError) -> BootstrapError:
        first = (str(error).splitlines() or [""])[0]
        return BootstrapError(f"rank {self.rank}: {self.store.name}: {shown(first)}")


class GivenCarrier:
    """A carrier (see rendezvous/carriers.py) by the store of a given job. On one host what it carries is of
    no use to others: the kernel tells there which user connects.
    """

    def __init__(self, job: GivenJob, is_public: bool) -> None:
        self._job = job
        self.name = job.store.name
        self.is_public = is_public

    def tell(self, value: str) -> None:
        """See Carrier."""
        try:
            self._job.store.set(f"{self._job.key}/{_OFFER}", value)
        except RuntimeError as error:
            raise self._job._failure(error) from None

    def hear(self, timeout: float) -> str:
        """See Carrier."""
        try:
            value = self._job.store.get(f"{self._job.key}/{_OFFER}", timeout)
        except RuntimeError as error:
            raise self._job._failure(error) from None
        if value is None:
            raise BootstrapError(
                f"rank {self._job.rank}: rank 0 has not told where it is by {self.name} within {timeout:g} s"
            )
        return value
