"""The state of a training that survives lost workers.

A *commit* is a copy of the state that this rank keeps in memory. After a failure every survivor goes back to
its newest commit; then the ranks, survivors and newcomers, *elect* a winner, whose state all of them get.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from horovod.bootstrap.start import elastic_membership
from horovod.common import basics
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.common.set_agreement import exchange
from horovod.elastic import preemption
from horovod.elastic.checkpoint.durability import Durability
from horovod.elastic.checkpoint.formats import ArrayFormat, Format
from horovod.elastic.checkpoint.notes import decode_notes
from horovod.elastic.snapshot import Snapshot
from horovod.elastic.updates import HostUpdateResult, HostUpdates

_NAME = "horovod.elastic.sync"


class _Turns:
    """How many states this process has trained to the end, and how many it trains, one within the other."""

    done = 0
    begun = 0


class Winner(NamedTuple):
    """Whose state all ranks get.

    ``holders``: the ranks that hold the same commit, the winner among them. ``age``: see ``State``.
    """

    rank: int = 0
    holders: frozenset[int] = frozenset({0})
    age: tuple[int, int] = (0, 0)


class State:
    """What all states have in common. Derive from ``ObjectState``, or from this class and define ``save``,
    ``restore`` and ``sync``.

    Each state has an *age*: how often it was synchronized, and how many commits there were. Both are carried
    over by ``sync``. The greatest age wins: a newcomer, which was never synchronized, never wins over a rank
    that was; and of two ranks, of which one has committed a step more than the other before the failure, the
    step is not lost. Who trains another state of the program than the winner cannot go on with it.

    Args:
        bcast_object: a function of an object and a root rank that gives all ranks the root's object.
        get_rank: a function that gives this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._updates = HostUpdates()
        self._reset_callbacks: list[Callable[[], None]] = []
        self._age = (0, 0)
        self._number = 0

    def save(self) -> None:
        """Keeps a copy of the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Makes the state what it was when it was last saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of one. All ranks must call it."""
        raise NotImplementedError

    def commit(self) -> None:
        """Saves the state, then looks whether the hosts have changed. All ranks must call it at the same
        place of their programs.

        Commit after optimizer steps: after a failure the training goes on from the last commit. The more
        often you commit the fewer steps are lost, but each copies the whole state.

        Raises:
            HostsUpdatedInterrupt: as ``check_host_updates``.
            UnpicklableObjectError: some attribute cannot be saved; it is named.
            HorovodInternalError: a rank is gone.
        """
        self._settle()
        self.save()
        synchronized, commits = self._age
        self._grow((synchronized, commits + 1))
        self._look(commits + 1)

    def _grow(self, age: tuple[int, int]) -> None:
        """Takes a new age; the launcher hears of the commits when this rank next asks for a place."""
        self._age = age
        membership = elastic_membership()
        if membership is not None:
            membership.commits = max(membership.commits, age[1])

    def check_host_updates(self) -> None:
        """Looks whether hosts have come or gone. All ranks must call it at the same place of their programs.

        Raises:
            HostsUpdatedInterrupt: on all ranks, in the same call, when some rank has heard of a change.
            HorovodInternalError: a rank is gone.
            SystemExit: this rank was asked to leave, by SIGTERM; the others raise HostsUpdatedInterrupt.
        """
        self._look(None)

    def _look(self, commit: int | None) -> None:
        """``check_host_updates``; ``commit`` is the number of the one that this rank has just saved."""
        news = self._updates.agree(self._note(commit), preemption.is_asked())
        self._hear(news.notes)
        if news.leaving and basics.rank() in news.leaving:
            preemption.leave()
        if news.result != HostUpdateResult.no_update:
            equal = news.is_complete and not self._differs_between_ranks()
            self._updates.supersede()
            if not news.is_complete and commit is None:
                # Who has joined hears of a failure instead, and goes back to its commit; so does this rank.
                self.restore()
            raise HostsUpdatedInterrupt(skip_sync=equal and news.result == HostUpdateResult.removed)

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Notes that hosts have changed. The next ``check_host_updates`` tells; may be called from any
        thread.

        Args:
            timestamp: of the change; greater than those of earlier changes, and equal on all ranks.
            update_res: what has changed, a ``HostUpdateResult``.
        """
        self._updates.note(timestamp, update_res)

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Has functions called whenever the ranks have changed, before the state is synchronized.

        Args:
            callbacks: functions without arguments. They can adapt the learning rate to ``hvd.size()``, say.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Is called when the ranks have changed, on those that were there before."""
        self._updates.forget_superseded()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def reset(self) -> None:
        """Adapts the state to the new ranks. To be overridden; it may not wait for other ranks."""

    def _note(self, commit: int | None) -> Any:
        """What this rank tells the others at a commit, if anything."""
        return None

    def _hear(self, notes: Mapping[int, Any]) -> None:
        """What the ranks have told; the same on all of them."""

    def _differs_between_ranks(self) -> bool:
        """Whether ranks may hold different states after the same step; the same answer on all of them."""
        return False

    def _settle(self) -> None:
        """Makes sure that what is to be saved has been computed. All ranks call it together."""

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """A training function is called with it. It has a number: one more than there are others whose
        functions have returned or run. So a training that fails may be tried again, with another state.
        """
        before, is_first = _Turns.done, self._number == 0
        self._number = self._number or _Turns.done + _Turns.begun + 1
        _Turns.begun += 1
        try:
            yield
            _Turns.done += is_first
        except BaseException:
            _Turns.done, self._number = before, 0 if is_first else self._number
            raise
        finally:
            _Turns.begun -= 1

    def _parts(self) -> list[str]:
        """What ``sync`` goes through, in order: equal on all ranks, or they wait for each other in vain."""
        return []

    def _elect(self) -> Winner:
        """Whose state all ranks get. A collective.

        Raises:
            ValueError: on the ranks that have another state than the winner; the others go on without them.
        """
        rank = basics.rank() if basics.is_initialized() else 0
        answers: dict[int, list[Any]] = {
            rank: [self._number, *self._age, self._updates.handled, self._parts()]
        }
        if basics.is_initialized() and basics.size() > 1:
            answers = exchange(answers[rank], _NAME)
        self._updates.handled = max(handled for *_, handled, _ in answers.values())
        # Who has what is trained goes before who has come further in the program, and has nothing yet.
        claims = {
            each: (synced > 0, number, synced, commits)
            for each, (number, synced, commits, *_) in answers.items()
        }
        best = max(claims.values())
        holders = frozenset(each for each, claim in claims.items() if claim == best)
        winner = min(holders)
        self._check_same(winner, *answers[winner])
        return Winner(winner, holders, best[2:])

    def _check_same(self, winner: int, number: int, *told: Any) -> None:
        if self._number != number:
            raise ValueError(
                f"This rank trains state {self._number} of its program, and rank {winner} state {number}: a "
                "process that comes later begins with the first. Train what comes one after another in "
                "one function, with one state."
            )
        if self._parts() != told[-1]:
            raise ValueError(
                f"The state of this rank has the parts {', '.join(self._parts())}, and that of rank {winner} "
                f"{', '.join(told[-1])}. Give all of them to the state when it is made: what the training "
                "function assigns, a process that comes later does not have yet."
            )


class ObjectState(State):
    """A state of Python objects, which are its attributes.

    Args:
        bcast_object: as for ``State``.
        get_rank: as for ``State``.
        **kwargs: names and first values of the attributes: numbers, lists, whatever can be pickled.

    Raises:
        UnpicklableObjectError: a ValueError; what cannot be.
        ValueError: a name that a method has.

    Attributes:
        durability: writes some of the commits to a folder; None where there is none.
        formats: of the tensors that the attributes may have.
    """

    durability: Durability | None = None
    formats: Sequence[Format] = (ArrayFormat(),)

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._snapshot = Snapshot()
        self._names = dict.fromkeys(kwargs)  # in order
        for name, value in kwargs.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(
                    f"A state cannot have an attribute {name!r}: the name is taken. Use another."
                )
            setattr(self, name, value)
        self._snapshot.take(self._objects())

    def record(self, **values: Any) -> None:
        """Adds a line to the history of the training, which ``horovodrun history`` shows. It belongs to the
        next commit: after a failure the history goes back as far as the state does. Without a folder for
        checkpoints it does nothing.

        Args:
            **values: numbers and text, such as ``step=7, loss=0.3``. All ranks call it alike; the line on
                disk is that of rank 0.
        """
        if self.durability is not None:
            self.durability.recorder.add(values)

    def save(self) -> None:
        """See ``State``."""
        self._snapshot.take(self._objects())

    def restore(self) -> None:
        """See ``State``. Objects are other ones than before, with the contents that they had."""
        self._updates.supersede()
        if self.durability is not None:
            self.durability.recorder.go_back()
        self._assign(self._saved_objects())

    def on_reset(self) -> None:
        """See ``State``."""
        if self.durability is not None:
            self.durability.on_reset()
        super().on_reset()

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most, and saves it. Before anybody has
        committed that is rank 0, which first loads the newest checkpoint, if there is one. All ranks must
        call it.

        Raises:
            CheckpointError: on every rank: the folder of checkpoints, or the newest one, cannot be used.
            UnpicklableObjectError: on every rank: the objects of that rank cannot be pickled.
            HorovodInternalError: a rank is gone.
        """
        winner = self._elect()
        if self.durability is not None and winner.age[0] == 0:  # nobody has anything
            commit = self.durability.resume()
            winner = winner if commit is None else Winner(age=(0, commit))
        self._receive(winner)
        self._settle()
        self.save()
        synchronized, commits = winner.age
        self._grow((synchronized + 1, commits))

    def _receive(self, winner: Winner) -> None:
        """Gives all ranks the winner's state."""
        if self._names:
            mine = self._objects()
            received = self._bcast_object(mine, winner.rank) if winner.rank else self._bcast_object(mine)
            if self._rank() != winner.rank:
                self._assign(received)
        if self.durability is not None:
            recorder = self.durability.recorder
            recorder.take(self._bcast_object(recorder.give(), winner.rank))

    def _parts(self) -> list[str]:
        return ["plain values"] if self._names else []

    def saved_values(self) -> dict[str, tuple[Any, bool]]:
        """See ``checkpoint.durability.Subject``."""
        return {name: (value, True) for name, value in self._saved_objects().items()}

    def lend(self) -> None:
        """See ``checkpoint.durability.Subject``."""

    def load_values(self, values: Mapping[str, Any]) -> None:
        """See ``checkpoint.durability.Subject``."""
        self._assign({name: value for name, value in values.items() if name in self._names})

    def _note(self, commit: int | None) -> Any:
        return None if self.durability is None or commit is None else self.durability.note(commit)

    def _hear(self, notes: Mapping[int, Any]) -> None:
        told = decode_notes(notes)
        if self.durability is not None and told is not None:
            self.durability.act(told)

    def _saved_objects(self) -> dict[str, Any]:
        saved = self._snapshot.values()
        return {name: value for name, value in saved.items() if name in self._names}

    def _objects(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _assign(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)
