"""Groups of ranks that collectives run over.

A set becomes known to the engine by ``init(process_sets=[...])`` or ``add_process_set``, on all ranks
together, and stops being known by ``remove_process_set`` or ``shutdown``. Before the engine is asked the
ranks compare what each of them wants, so that a disagreement is the same error everywhere, not a hang.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.bootstrap.variables import flag
from horovod.common.set_agreement import agree

_DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


class ProcessSet:
    """A set of ranks, in ascending order; or, with MPI, a communicator.

    ``process_set_id`` is None until the set is known to the engine, and again when it no longer is;
    ``size()``, ``rank()`` and ``included()`` return None meanwhile.

    Args:
        ranks_or_comm: ranks of the job, in any order; or a communicator.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None
    _position: int | None = None  # of this process in `ranks`, while registered

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        try:
            ranks = iter(ranks_or_comm)
        except TypeError:
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(operator.index(rank) for rank in ranks)

    def _active(self) -> bool:
        return self.process_set_id is not None and _core.has_topology()

    def size(self) -> int | None:
        """How many ranks the set has."""
        if not self._active():
            return None
        return _core.topology()[1] if self.ranks is None else len(self.ranks)

    def rank(self) -> int | None:
        """This process's position in the set; None when it is not part of it."""
        if not self._active():
            return None
        return _core.topology()[0] if self.ranks is None else self._position_of(_core.topology()[0])

    def included(self) -> bool | None:
        """Whether this process is part of the set."""
        return self.rank() is not None if self._active() else None

    def _position_of(self, rank: int) -> int | None:
        return self.ranks.index(rank) if self.ranks is not None and rank in self.ranks else None

    def __copy__(self) -> ProcessSet:
        return self  # a model or optimizer that is copied goes on with the same ranks

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        return self

    def __reduce__(self) -> tuple[Callable[[list[int] | None], ProcessSet], tuple[list[int] | None]]:
        if self.ranks is None and self is not global_process_set:
            raise TypeError("a ProcessSet of a communicator cannot be pickled")
        return with_ranks, (None if self is global_process_set else self.ranks,)

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

# What the engine knows besides the global set, by number.
_registered: dict[int, ProcessSet] = {}
_lock = threading.RLock()  # one change at a time
_removal_callbacks: list[Callable[[], None]] = []


def on_removal(callback: Callable[[], None]) -> None:
    """Runs ``callback`` after every ``remove_process_set``: the number of a set is no set's any more."""
    _removal_callbacks.append(callback)


def with_ranks(ranks: list[int] | None) -> ProcessSet:
    """A set that was saved: the registered one of these ranks, if there is one. None: the global set."""
    if ranks is None:
        return global_process_set
    return next((known for known in _registered.values() if known.ranks == ranks), None) or ProcessSet(ranks)


def check_process_set(process_set: ProcessSet) -> int:
    """The number by which the engine knows the set. Raises unless this rank can run operations over it."""
    if process_set is global_process_set:
        return 0
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, not {type(process_set).__name__}")
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not registered with this job. Give it to hvd.init(process_sets=[...]) or "
            "hvd.add_process_set() on all ranks first, or use hvd.global_process_set."
        )
    if process_set._position is None:
        raise ValueError(
            f"Rank {_core.topology()[0]} is not part of process set {number}, whose members are the ranks "
            f"{process_set.ranks}; only these may run operations over it. Guard the call with "
            "process_set.included()."
        )
    return number


def included_sets() -> list[int]:
    """The numbers of all registered sets that this rank is part of, the global set (0) first."""
    mine = [number for number, known in _registered.items() if known._position is not None]
    return [0, *sorted(mine)]


def registered(number: int) -> ProcessSet:
    """The process set of a number that ``check_process_set`` gave."""
    return global_process_set if number == 0 else _registered[number]


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a set of ranks while the job runs; all ranks of the job must call it together.

    Needs ``init(process_sets="dynamic")`` or HOROVOD_DYNAMIC_PROCESS_SETS=1.

    Args:
        process_set: a ProcessSet, or its ranks.

    Returns:
        The registered set.

    Raises:
        ValueError: a rank lacks that setting, the ranks ask for different sets, or the set is empty, names a
            rank that does not exist or equals a registered one; with one text on every rank.
    """
    _need_engine()
    wanted, problem = _candidate(process_set)
    with _lock:
        _register("hvd.add_process_set", [wanted], problem or _not_dynamic())
    return wanted


def own_sets(ranks: Sequence[Sequence[int]]) -> list[ProcessSet]:
    """Sets of a part of the library, for its own use: all ranks of the job call it together. Those that are
    registered already are used, and no setting is needed.
    """
    _need_engine()
    everyone = list(range(_core.topology()[1]))
    with _lock:
        wanted = [global_process_set if list(each) == everyone else with_ranks(list(each)) for each in ranks]
        _register("a search", [each for each in wanted if each.process_set_id is None], None)
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a set; all ranks of the job must call it together. The object may be registered again later.

    Needs the setting that ``add_process_set`` needs.

    Args:
        process_set: one that is registered.

    Returns:
        False, and nothing done, for the global set and for one that is not registered.

    Raises:
        ValueError: a rank lacks that setting, or still has operations in flight on the set; with one text on
            every rank.
    """
    if process_set is global_process_set or not _core.is_initialized():
        return False
    number = process_set.process_set_id
    if number is None:
        return False
    with _lock:
        agree("hvd.remove_process_set", [number, process_set.ranks], _not_dynamic() or _busy(process_set))
        _core.remove_process_set(number)
        del _registered[number]
        _invalidate(process_set)
    for callback in _removal_callbacks:
        callback()
    return True


def register_at_start(process_sets: Sequence[ProcessSet]) -> None:
    """Registers the sets that ``init`` was given, on all ranks. Raises as ``add_process_set``."""
    from horovod.common.communicators import resolved  # late: it needs all of the bootstrap

    with _lock:
        _register("hvd.init(process_sets=...)", *resolved(process_sets, ProcessSet))


def invalidate_all() -> None:
    """After shutdown: no set is registered any more."""
    with _lock:
        for process_set in _registered.values():
            _invalidate(process_set)
        _registered.clear()


def _register(caller: str, wanted: Sequence[ProcessSet], problem: str | None) -> None:
    rank, size = _core.topology()[:2]
    known = {tuple(range(size)): "the global process set"}
    known |= {tuple(s.ranks or ()): f"process set {number}" for number, s in _registered.items()}
    for process_set in wanted:
        problem = problem or _problem_with(process_set, size, known)
        known[tuple(process_set.ranks or ())] = "another one of the call"
    agree(caller, [process_set.ranks for process_set in wanted], problem)
    for process_set in wanted:
        ranks = list(process_set.ranks or ())
        number = _core.add_process_set(ranks)
        process_set._position = process_set._position_of(rank)
        process_set.process_set_id = number
        _registered[number] = process_set


def _candidate(given: ProcessSet | Sequence[int]) -> tuple[ProcessSet, str | None]:
    """The set to register, or why there is none: which the other ranks must hear before this one raises."""
    if isinstance(given, ProcessSet):
        return given, None
    try:
        return ProcessSet(given), None
    except (TypeError, ValueError):
        return ProcessSet([]), f"a process set is made of ranks (integers), not of {given!r:.100}"


def _problem_with(process_set: ProcessSet, size: int, known: dict[tuple[int, ...], str]) -> str | None:
    ranks = process_set.ranks
    if ranks is None:
        return "a process set of a communicator is for hvd.init(process_sets=[...])"
    if process_set.process_set_id is not None:
        return f"the ProcessSet is registered already, as number {process_set.process_set_id}"
    if not ranks:
        return "a process set has at least one rank"
    if ranks[0] < 0 or ranks[-1] >= size:
        return f"the ranks {ranks} do not all exist: the job has the ranks 0 to {size - 1}"
    if len(set(ranks)) < len(ranks):
        return f"the ranks {ranks} contain one twice"
    if tuple(ranks) in known:
        return f"the ranks {ranks} are those of {known[tuple(ranks)]} already"
    return None


def _busy(process_set: ProcessSet) -> str | None:
    names = _core.in_flight(process_set.process_set_id or 0) if process_set._position is not None else []
    if not names:
        return None
    listed = ", ".join(repr(name) for name in sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
    return (
        f"operations are in flight on process set {process_set.process_set_id}: {listed}; wait for them first"
    )


def _not_dynamic() -> str | None:
    if flag(_DYNAMIC):
        return None
    return f'needs hvd.init(process_sets="dynamic") or {_DYNAMIC}=1'


def _need_engine() -> None:
    _core.check_running()


def _invalidate(process_set: ProcessSet) -> None:
    process_set.process_set_id = process_set._position = None
