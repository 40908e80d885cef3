"""A job whose ranks the program tells, with a store by which they tell each other a few bytes: who they are,
and where rank 0 keeps the store of the core. Or which ranks of a job that runs already they are.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .errors import BootstrapError, StartTimeoutError
from .identity import Identity
from .sources import TORCH_PROGRAM
from .text import shown

_HOST, _OFFER, _VERDICT = "host", "store", "places"
_RUNS = "runs: "  # no name of a host
_GRACE_SECONDS = 5.0  # in which rank 0 tells the others


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
class Place:
    """A process's rank in a job that runs already. ``job``: what tells that from other jobs."""

    rank: int
    size: int
    job: str

    def told(self) -> str:
        """As the others read it."""
        return f"{_RUNS}{json.dumps([self.rank, self.size, self.job])}"

    @staticmethod
    def read(text: str) -> "Place | None":
        """None: the process is in no job yet."""
        return Place(*json.loads(text.removeprefix(_RUNS))) if text.startswith(_RUNS) else None


def one_job(places: Sequence[Place | None]) -> list[int]:
    """For each rank of a process group its rank in the one job that all of them are in.

    Raises ValueError where they are not, which says what to do.
    """
    inside = {rank: place for rank, place in enumerate(places) if place is not None}
    outside = [rank for rank, place in enumerate(places) if place is None]
    if outside:
        raise ValueError(
            f"The ranks {list(inside)} of the process group are in a job already, of hvd.init() or of "
            f"another group, and {outside} are not. Call hvd.init() on all of them before, or on none, or "
            "begin with a group of all ranks"
        )
    if len({place.job for place in inside.values()}) > 1:
        listed = ", ".join(f"{rank} is rank {place.rank} of {place.size}" for rank, place in inside.items())
        raise ValueError(
            f"The ranks of the process group are in different jobs: {listed:.500}. Start them as one job "
            "(horovodrun, torchrun), or begin the process group before hvd.init(), which then joins its job"
        )
    return [place.rank for place in inside.values()]


@dataclass(frozen=True)
class GivenJob:
    """This process's place in it. ``key``: what tells its keys in the store from those of earlier jobs."""

    rank: int
    size: int
    store: GivenStore
    key: str

    def identity(self, environ: Mapping[str, str], timeout: float) -> Identity:
        """Who this process is, once all ranks have told their hosts.

        Raises StartTimeoutError, which names the ranks that do not come, BootstrapError when the store does
        not answer, and ValueError where a rank is in a job already.
        """
        own = environ.get("HOROVOD_HOSTNAME") or os.uname().nodename
        hosts = self._all_told(own, timeout)
        places = [Place.read(host) for host in hosts]
        if any(places):
            self._decide(places)
        local = [rank for rank in range(self.size) if hosts[rank] == own]
        hostname = "localhost" if len(local) == self.size else own
        position = local.index(self.rank)
        return Identity(self.rank, self.size, position, len(local), 0, 1, hostname, TORCH_PROGRAM)

    def places(self, own: Place, timeout: float) -> list[int]:
        """For each rank its rank in the job that all of them are in already. Raises as ``identity``, with one
        text on every rank.
        """
        if self.rank == 0:
            return self._decide([Place.read(told) for told in self._all_told(own.told(), timeout)])
        try:
            self.store.set(f"{self.key}/{_HOST}/{self.rank}", own.told())
            verdict = self.store.get(f"{self.key}/{_VERDICT}", timeout + _GRACE_SECONDS)
        except RuntimeError as error:
            raise self._failure(error) from None
        if verdict is None:
            raise self._absence([0], timeout)
        ranks, problem = json.loads(verdict)
        if problem:
            raise ValueError(problem)
        return list(ranks)

    def _decide(self, places: Sequence[Place | None]) -> list[int]:
        """What all are to know of these places, told by rank 0."""
        ranks: list[int] = []
        problem = ""
        try:
            ranks = one_job(places)
        except ValueError as error:
            problem = str(error)
        if self.rank == 0:
            try:
                self.store.set(f"{self.key}/{_VERDICT}", json.dumps([ranks, problem]))
            except RuntimeError as error:
                raise self._failure(error) from None
        if problem:
            raise ValueError(problem)
        return ranks

    def _all_told(self, own: str, timeout: float) -> list[str]:
        deadline = time.monotonic() + timeout
        try:
            self.store.set(f"{self.key}/{_HOST}/{self.rank}", own)
            told = [self._told_by(rank, deadline) for rank in range(self.size)]
        except RuntimeError as error:
            raise self._failure(error) from None
        absent = [rank for rank, text in enumerate(told) if text is None]
        if absent:
            raise self._absence(absent, timeout)
        return [text for text in told if text is not None]

    def _told_by(self, rank: int, deadline: float) -> str | None:
        return self.store.get(f"{self.key}/{_HOST}/{rank}", max(0.01, deadline - time.monotonic()))

    def _absence(self, absent: list[int], timeout: float) -> StartTimeoutError:
        return StartTimeoutError(
            f"rank {self.rank}: the ranks {absent} of {self.size} have not come to {self.store.name} within "
            f"{timeout:g} s",
            absent,
        )

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
