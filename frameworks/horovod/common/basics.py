"""Starting, stopping and asking about the job. Every adapter re-exports these names."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from horovod import _core
from horovod.bootstrap import tracebacks
from horovod.common import process_sets as sets
from horovod.common import progress as reports
from horovod.common import remarks, stacks
from horovod.common.process_sets import ProcessSet, global_process_set

_lock = threading.RLock()
_owner_pid: int | None = None  # the process that called init; a forked child is uninitialised
_lent = False  # to torch.distributed: started for it, and the program itself has not called init
_callbacks_before_shutdown: list[Callable[[], None]] = []
_shutdown_callbacks: list[Callable[[], None]] = []
_joins = 0

tracebacks.install()  # programs that forget init have them folded, too
if "HOROVOD_RANK" in os.environ:
    stacks.answer_launcher()  # whoever is late may never come to init


def before_shutdown(callback: Callable[[], None]) -> None:
    """Runs ``callback`` before every ``shutdown``, while operations can still be completed."""
    _callbacks_before_shutdown.append(callback)


def on_shutdown(callback: Callable[[], None]) -> None:
    """Runs ``callback`` after every ``shutdown``, when the engine no longer touches any tensor."""
    _shutdown_callbacks.append(callback)


def joins() -> int:
    """How often all ranks have joined: those that did so early have made fewer steps, and do not know what
    the others have learnt meanwhile.
    """
    return _joins


def note_join() -> None:
    """All ranks have joined."""
    global _joins
    _joins += 1


def init(
    comm: Sequence[int] | Any | None = None, process_sets: Sequence[ProcessSet] | str | None = None
) -> None:
    """Joins the job described by the environment; alone (rank 0 of 1) when there is none. Does nothing when
    initialised.

    Args:
        comm: None or empty: the job is all ranks. An intracommunicator of mpi4py, or a list of ranks of
            MPI_COMM_WORLD: its members are the job, with their ranks in it, and only they call this. MPI must
            have started them.
        process_sets: a list of ProcessSet to register, equal on all ranks (but for communicators, which may
            be several, as after a split), or "dynamic" to allow ``add_process_set`` and
            ``remove_process_set`` while the job runs.

    Raises:
        ValueError: a set is wrong or the ranks differ, with one text on every rank and with nothing left
            running; or ``comm`` needs MPI, or does not contain this rank.
        NotImplementedError: ``comm`` is a list of ranks and a set is a communicator.
        RuntimeError: the job could not be joined: a BootstrapError of ``horovod.bootstrap.errors``, which is
            its StartTimeoutError, also a TimeoutError, where it names ranks that did not come in time; or
            HorovodInternalError, where a rank was lost after all had met.
    """
    global _owner_pid, _lent
    given = _check_sets(process_sets)
    _check_comm(comm, given)
    with _lock:
        if _core.is_initialized():
            if _lent:
                _check_lent()
            _check_registered(given)
            _lent = False
            return
        if isinstance(process_sets, str):
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        # Late: `import horovod.torch` has no use for sockets and cryptography.
        from horovod.bootstrap.start import start

        stacks.show_crashes()
        start(comm=comm)
        stacks.watch()
        _owner_pid = os.getpid()
        global_process_set.ranks = list(range(size()))
        atexit.unregister(shutdown)
        atexit.register(shutdown)
        if given:
            try:
                sets.register_at_start(given)
            except BaseException:
                shutdown()
                raise
        remarks.begin()
        reports.begin()


def lend(rank: int, size: int, store: Any, key: str) -> list[int]:
    """Joins a job with the ``size`` processes that call this, for a part of a program that ends with
    ``give_back``. Where they have joined a job already, or horovodrun has started just them, it is that.

    Args:
        rank: of this process among them.
        size: how many call this.
        store: where they meet, a ``bootstrap.given.GivenStore``; None: they cannot, and are all ranks of the
            job, in its order.
        key: what tells their keys in it from others.

    Returns:
        For each of them its rank in the job.

    Raises:
        ValueError: they are not in one job, or without a store another rank of it; with one text on every
            rank.
        RuntimeError: as ``init``.
    """
    global _lent
    from horovod.bootstrap.given import GivenJob

    given = GivenJob(rank, size, store, key)
    with _lock:
        if not _core.is_initialized():
            launched = os.environ.get("HOROVOD_SIZE") == str(size)
            init(None if launched or store is None else given)
            _lent = True
            if not launched and store is not None:
                return list(range(size))
            try:
                return _places(given)
            except BaseException:
                give_back()  # nobody else has the job yet
                raise
    return _places(given)  # without the lock: it may wait for long


def _places(given: Any) -> list[int]:
    """For each rank of a given job its rank in the one that runs."""
    from horovod.bootstrap.given import Place
    from horovod.bootstrap.start import key_for
    from horovod.bootstrap.start_settings import start_timeout

    rank, size = _topology()[:2]
    if given.store is not None:
        own = Place(rank, size, key_for("the job of process groups").hex()[:16])
        return list(given.places(own, start_timeout(os.environ)))
    if (rank, size) != (given.rank, given.size):
        raise ValueError(
            f"This process is to be rank {given.rank} of {given.size}, but is rank {rank} of {size} of the "
            "job that hvd.init() joins; give the numbers of hvd.rank() and hvd.size(), or a store that all "
            "processes share."
        )
    return list(range(size))


def _check_lent() -> None:
    """Raises ValueError where process groups have begun a job that is not the launcher's."""
    from horovod.bootstrap.identity import from_environment

    try:
        told = from_environment(os.environ)
    except ValueError:  # it tells only what torch.distributed asks
        return
    rank, size = _topology()[:2]
    if told.size > 1 and (told.rank, told.size) != (rank, size):
        raise ValueError(
            f"hvd.init(): {told.launcher} has started this process as rank {told.rank} of {told.size}, but a "
            f"process group of torch.distributed has made it rank {rank} of {size} of a job of its own. Call "
            "hvd.init() first; process groups of a part of its ranks can then be made"
        )


def give_back() -> None:
    """Leaves the job, unless it was joined before ``lend``, or the program has called ``init`` meanwhile."""
    with _lock:
        if _lent:
            shutdown()


def _check_sets(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is a list of ProcessSet or "dynamic", not {process_sets!r}')
        return []
    given = list(process_sets)
    for process_set in given:
        if not isinstance(process_set, ProcessSet):
            raise TypeError(
                f"process_sets is a list of ProcessSet, found {type(process_set).__name__}; "
                "write hvd.ProcessSet([0, 1])"
            )
    return given


def _check_comm(comm: Sequence[int] | Any | None, given: list[ProcessSet]) -> None:
    if isinstance(comm, (list, tuple, range)) and comm and any(known.ranks is None for known in given):
        raise NotImplementedError(
            "init(comm=[ranks], process_sets=[...]): sets that are communicators need a communicator as comm"
        )
    if comm is not None:
        from horovod.bootstrap.communicator import check

        check(comm)


def _check_registered(given: list[ProcessSet]) -> None:
    missing = [process_set for process_set in given if process_set.process_set_id is None]
    if missing:
        raise ValueError(
            f"hvd.init() was called before, so {missing[0]} is not registered; use hvd.add_process_set(), or "
            "hvd.shutdown() first"
        )


def shutdown() -> None:
    """Leaves the job: outstanding operations fail, all threads and links end. ``init`` may be called
    again.
    """
    global _owner_pid, _lent
    if _owner_pid != os.getpid():  # before the lock, which a forked child may have inherited taken
        return
    with _lock:
        if _owner_pid is None:
            return
        for callback in _callbacks_before_shutdown:
            callback()
        remarks.end()
        reports.end()
        _owner_pid, _lent = None, False
        from horovod.bootstrap.start import stop

        stop()
        stacks.rest()
        global_process_set.ranks = None
        sets.invalidate_all()
        for callback in _shutdown_callbacks:
            callback()


def is_initialized() -> bool:
    """Whether ``init`` was called in this process, and ``shutdown`` not since."""
    return _core.is_initialized()


def _topology() -> tuple[int, int, int, int, int, int]:
    return _core.topology()  # ValueError before init


def rank() -> int:
    """This process's number in the job, from 0 to ``size() - 1``."""
    return _topology()[0]


def size() -> int:
    """How many processes the job has."""
    return _topology()[1]


def local_rank() -> int:
    """This process's number on its host; use it to choose a GPU."""
    return _topology()[2]


def local_size() -> int:
    """How many processes of the job run on this host."""
    return _topology()[3]


def cross_rank() -> int:
    """This host's number among the hosts that have a process of this local rank."""
    return _topology()[4]


def cross_size() -> int:
    """How many hosts have a process of this local rank."""
    return _topology()[5]


def is_master() -> bool:
    """Whether this is rank 0, which by custom writes checkpoints and logs."""
    return rank() == 0


def is_homogeneous() -> bool:
    """Whether every host runs the same number of processes."""
    _, total, _, local, _, hosts = _topology()
    return local * hosts == total


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins to write a timeline; does nothing when one is active.

    Args:
        file_path: where to.
        mark_cycles: notes each round of the engine, too.

    Raises:
        ValueError: the job was not started with HOROVOD_TIMELINE=DYNAMIC, or not at all.
    """
    _topology()
    if os.environ.get("HOROVOD_TIMELINE", "").upper() != "DYNAMIC":
        raise ValueError(
            "Set HOROVOD_TIMELINE=DYNAMIC before hvd.init() to start a timeline from the program."
        )
    _core.start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline that ``start_timeline`` began."""
    _topology()
    _core.stop_timeline()


def counters() -> dict[str, int]:
    """Totals of the engine since ``init``: collectives, tensors, bytes, cache_hits, cache_misses, wakeups,
    ...
    """
    _topology()
    return _core.counters()
