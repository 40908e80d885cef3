"""The job that a program gives to ``hvd.init``: who its ranks are, and how rank 0 tells the others where its
store is. That is a communicator of MPI here; ``given`` has the job that is given by a store.

The communicators are those of mpi4py. Nothing here waits for ever: a rank that does not come is an error.
"""

import hashlib
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import BootstrapError, StartTimeoutError
from .given import GivenCarrier, GivenJob
from .identity import ALONE, HOROVODRUN, Identity, from_environment

_MOST_BYTES = 4096  # of what one rank tells
_WORD_BYTES = 32
_PAUSE_SECONDS = 0.001

# MPI may still write to what these hold.
_abandoned: list[Any] = []
# Those on which such a call is: the next one on it, on another rank, would be taken for its counterpart.
_given_up: list[Any] = []
_TRY_AGAIN = (
    "To try again, all of them give a communicator that none has tried before: let each try be "
    "hvd.init(comm=comm.Dup())"
)
# Those that were made of a list of ranks: an MPI has only so many.
_made: dict[tuple[int, ...], Any] = {}


class CommunicatorCarrier:
    """A carrier (see rendezvous/carriers.py). ``tell`` and ``hear`` are collective, once."""

    name = "the communicator"
    is_public = False

    def __init__(self, comm: Any, timeout: float) -> None:
        self._comm, self._timeout = comm, timeout
        self._heard = ""

    def tell(self, value: str) -> None:
        """Gives ``value`` to all other ranks."""
        self._broadcast(value, self._timeout)

    def hear(self, timeout: float) -> str:
        """What rank 0 tells; again at every further call."""
        if not self._heard:
            self._heard = self._broadcast("", timeout)
        return self._heard

    def _broadcast(self, value: str, timeout: float) -> str:
        line = _padded(value)
        _wait_for_all(self._comm, self._comm.Ibcast(line, root=0), timeout)
        return _text(line)


def carrier_of(comm: Any, identity: Identity, timeout: float) -> CommunicatorCarrier | GivenCarrier:
    """The carrier of a communicator or of a given job."""
    if isinstance(comm, GivenJob):
        return GivenCarrier(comm, is_public=identity.local_size < identity.size)
    return CommunicatorCarrier(comm, timeout)


def check(comm: Sequence[int] | Any | None) -> None:
    """Raises ValueError unless ``hvd.init(comm=...)`` can take it in this process."""
    if comm is None or isinstance(comm, GivenJob):
        return
    if isinstance(comm, (list, tuple, range)):
        _check_list(list(comm))
    elif not is_communicator(comm):
        raise ValueError(
            f"hvd.init(comm={comm!r:.100}): comm is an intracommunicator of mpi4py (of MPI), or a list of "
            "ranks"
        )
    elif not comm:
        raise ValueError(
            "hvd.init(comm=MPI.COMM_NULL): this process is in no communicator of that MPI call, so it cannot "
            "be a rank of its job; let only the members call hvd.init"
        )


def is_communicator(value: Any) -> bool:
    """Whether it has the calls that are used here; an intercommunicator does not do what they say."""
    needed = ("Get_rank", "Get_size", "Get_group", "Ibcast", "Iallgather", "Is_inter")
    return all(hasattr(value, name) for name in needed) and not (value and value.Is_inter())


def _check_list(ranks: list[Any]) -> None:
    own = from_environment(os.environ)
    is_wrong = own.rank not in ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(own.size))
    if ranks and is_wrong:
        raise ValueError(
            f"hvd.init(comm={ranks}) on rank {own.rank} of MPI_COMM_WORLD (size {own.size}): comm must list "
            "ranks of it, each once, with this one; a rank that is not in the list must not call hvd.init"
        )


def communicator_of(comm: Sequence[int] | Any | None, timeout: float) -> Any | None:
    """The communicator for ``comm``, which is checked; None: the job is all ranks. Collective over the
    members of a list.

    Raises ValueError where a list needs MPI and there is none, and StartTimeoutError where a member of it
    does not come.
    """
    if comm is None or not isinstance(comm, (list, tuple, range)):
        return comm
    ranks = tuple(comm)
    own = from_environment(os.environ)
    if not ranks or ranks == tuple(range(own.size)):
        return None
    if ranks not in _made:
        try:
            mpi = importlib.import_module("mpi4py.MPI")
        except (ImportError, RuntimeError) as error:
            needs = f"hvd.init(comm={list(ranks)}) needs MPI and mpi4py (pip install mpi4py)"
            raise ValueError(f"{needs}: {error}") from None
        _check_world(mpi.COMM_WORLD, own)
        _made[ranks] = _make(mpi, ranks, timeout)
    return _made[ranks]


def _make(mpi: Any, ranks: Sequence[int], timeout: float) -> Any:
    """No call of MPI that makes a communicator of a part of the ranks returns before all of them are in it.
    So they say first that they are about to, with their list, and hear it from the list's first rank; and
    once more, for the first word may be one of a rank that has given up since.
    """
    world, first, others = mpi.COMM_WORLD, ranks[0], ranks[1:]
    word = hashlib.sha256(repr(tuple(ranks)).encode()).digest()
    is_first = world.Get_rank() == first
    peers = others if is_first else (first,)
    for _ in range(2):
        if is_first:
            told = _hear(mpi, peers, timeout)
            _say(mpi, peers, word, timeout)
        else:
            _say(mpi, peers, word, timeout)
            told = _hear(mpi, peers, timeout)
        if differing := [rank for rank, said in told.items() if said != word]:
            raise BootstrapError(
                f"hvd.init(comm={list(ranks)}) on rank {world.Get_rank()} of MPI_COMM_WORLD: {differing} "
                "gave another list. Give all its members the same list, in the same order"
            )
    return world.Create_group(world.Get_group().Incl(list(ranks)))


def _say(mpi: Any, peers: Sequence[int], word: bytes, timeout: float) -> None:
    world = mpi.COMM_WORLD
    tag = world.Get_attr(mpi.TAG_UB)
    _wait({rank: world.Isend(bytearray(word), dest=rank, tag=tag) for rank in peers}, timeout)


def _hear(mpi: Any, peers: Sequence[int], timeout: float) -> dict[int, bytes]:
    world = mpi.COMM_WORLD
    words = {rank: bytearray(_WORD_BYTES) for rank in peers}
    tag = world.Get_attr(mpi.TAG_UB)
    requests = {rank: world.Irecv(word, source=rank, tag=tag) for rank, word in words.items()}
    try:
        _wait(requests, timeout)
    except StartTimeoutError:
        for request in requests.values():  # they would hear what a later try is told
            if not request.Test():
                request.Cancel()
        raise
    return {rank: bytes(word) for rank, word in words.items()}


def identity_of(comm: Any, environ: Mapping[str, str], timeout: float) -> Identity:
    """The identity of this process in ``comm``, a communicator or a given job. Collective.

    Raises ValueError where MPI has not started the ranks or ``comm`` has been tried in vain before, and
    StartTimeoutError when a member does not come.
    """
    if isinstance(comm, GivenJob):
        return comm.identity(environ, timeout)
    if comm in _given_up:
        raise ValueError(
            "hvd.init(comm=...): not all ranks of this communicator came when it was tried before. "
            f"{_TRY_AGAIN}"
        )
    own = from_environment(environ)
    _check_world(importlib.import_module("mpi4py.MPI").COMM_WORLD, own)
    rank, size = comm.Get_rank(), comm.Get_size()
    hosts = _gather(comm, own.hostname, timeout)
    local = [peer for peer in range(size) if hosts[peer] == hosts[rank]]
    hostname = "localhost" if len(local) == size else own.hostname
    placed = own._replace(rank=rank, size=size, local_rank=local.index(rank), local_size=len(local))
    return placed._replace(hostname=hostname)


def _check_world(world: Any, own: Identity) -> None:
    """MPI in processes that it has not started takes each of them for a world of its own."""
    size = world.Get_size()
    if size != own.size or (size > 1 and own.launcher in (HOROVODRUN, ALONE)):
        raise ValueError(
            f"hvd.init(comm=...): this is one of {own.size} processes, started by {own.launcher}, and "
            f"MPI_COMM_WORLD has {size}: start the job with mpirun or horovodrun --mpi, of the MPI that "
            "mpi4py uses"
        )


def _gather(comm: Any, value: str, timeout: float) -> list[str]:
    """What every member tells, by rank."""
    all_lines = bytearray(_MOST_BYTES * comm.Get_size())
    _wait_for_all(comm, comm.Iallgather(_padded(value), all_lines), timeout)
    starts = range(0, len(all_lines), _MOST_BYTES)
    return [_text(all_lines[start : start + _MOST_BYTES]) for start in starts]


def _wait_for_all(comm: Any, request: Any, timeout: float) -> None:
    if _is_slow([request], timeout):
        _given_up.append(comm)
        raise StartTimeoutError(
            f"rank {comm.Get_rank()} of the communicator of hvd.init(comm=...): not all of its "
            f"{comm.Get_size()} ranks have called hvd.init within {timeout:g} s. {_TRY_AGAIN}"
        )


def _wait(requests: Mapping[int, Any], timeout: float) -> None:
    """For each of these ranks of MPI_COMM_WORLD."""
    if _is_slow(list(requests.values()), timeout):
        absent = [rank for rank, request in requests.items() if not request.Test()]
        raise StartTimeoutError(
            f"hvd.init(comm=[...]): of the ranks of MPI_COMM_WORLD {absent} did not call it with the same "
            f"list within {timeout:g} s"
        )


def _is_slow(requests: list[Any], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not all(map(_is_done, requests)):
        if time.monotonic() > deadline:
            _abandoned.extend(requests)
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _is_done(request: Any) -> bool:
    return bool(request.Test())


def _padded(value: str) -> bytearray:
    return bytearray(value.encode(errors="replace")[:_MOST_BYTES].ljust(_MOST_BYTES))


def _text(line: bytearray) -> str:
    return line.decode(errors="replace").rstrip()
