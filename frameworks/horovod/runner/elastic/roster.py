"""The launcher's side of ``bootstrap.membership``: who waits for a place, and what each is told."""

import collections
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from horovod.bootstrap import secret
from horovod.bootstrap.membership import DURABLE, MOST_WORKERS, Place
from horovod.bootstrap.store.remarks import never_started
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.elastic.driver.numbering import Member

NewStore = Callable[[bytes, int], StoreServer]
"""Makes a store for so many ranks, which prove that secret."""

_WAITING, _LEAVING, _HOLDING = b"waiting/", b"leaving/", b"holding/"
_PLACE, _UPDATE = b"place/", b"update/"
# Of a start, beside the times in which its ranks give up by themselves, or give each other up.
_SLACK_SECONDS = 5.0
_LEFT_SECONDS = 1.0  # for the store to read what ranks have said that have left it
_NEVER = float("inf")
_OF_LIVING = (Kind.STALL, Kind.CORRUPT, Kind.LINK, Kind.FAULT)
_REQUEST = re.compile(rb"[0-9]{1,9} [0-9]{1,18}")


class Roster:
    """Talks with the workers, over a store that lives as long as the job, and keeps for each generation a
    store of its own, where its ranks meet, as those of any job do.
    """

    def __init__(
        self,
        root: bytes,
        new_store: NewStore,
        wake: Callable[[], None],
        start_seconds: float,
        prepare: Callable[[StoreServer], None] = lambda server: None,
    ) -> None:
        """``wake`` may be called on any thread; ``prepare`` gets the store of the job before it serves."""
        self._root = root
        self._new_store = new_store
        self._wake = wake
        self._start_seconds = start_seconds
        self._asked: collections.Counter[int] = collections.Counter()
        self._said: dict[bytes, collections.deque[int]] = {}  # the workers, by what they have said
        self._commits: dict[int, int] = {}  # of the training, by the worker that has told it
        self._durable: set[int] = set()  # workers whose state is on disk, too
        self._updates = 0
        self._members: tuple[Member, ...] = ()
        self._store: StoreServer | None = None  # of the current generation
        self._overdue_at = _NEVER  # when its ranks must have come through their start
        self._server = new_store(root, MOST_WORKERS)
        self._told: dict[int, bytes] = {}  # by worker, the key of its last place
        for prefix in (_WAITING, _LEAVING, _HOLDING):
            self._said[prefix] = collections.deque()
            self._server.divert(prefix, self._hear)
        for prefix in (_PLACE, _UPDATE):
            self._server.divert(prefix, lambda *_: "that is for the launcher to say")
        prepare(self._server)
        self._server.start()

    @property
    def address(self) -> str:
        """Where workers reach it."""
        return self._server.address

    def take_waiting(self) -> list[tuple[int, int]]:
        """The workers that have asked for a place since the last call, and how many commits of the training
        each knows of.
        """
        return [(worker, self._commits[worker]) for worker in _emptied(self._said[_WAITING])]

    def take_leaving(self) -> list[int]:
        """The workers that have said since the last call that they end in good order."""
        return _emptied(self._said[_LEAVING])

    def take_holding(self) -> list[tuple[int, bool]]:
        """The workers that have said since the last call that they have the state of the training, and
        whether they write it to disk.
        """
        return [(worker, worker in self._durable) for worker in _emptied(self._said[_HOLDING])]

    def form(self, generation: int, members: Sequence[Member]) -> None:
        """Tells the members of a generation their places. Raises OSError where it can have no store: then
        nobody has been told anything.
        """
        self._close_store()
        address = ""
        if len(members) > 1:
            self._store = self._new_store(secret.of_generation(self._root, generation), len(members))
            self._store.watch_start(self._start_seconds, self._wake)
            self._store.start()
            address = self._store.address
            self._overdue_at = time.monotonic() + 2 * self._start_seconds + _SLACK_SECONDS
        before = {member.worker for member in self._members}
        has_newcomers = any(member.worker not in before for member in members)
        self._members = tuple(members)
        for member in members:
            position = (member.local_rank, member.local_size, member.cross_rank, member.cross_size)
            place = Place(
                generation, member.rank, member.size, *position, address, self._updates, has_newcomers
            )
            self._forget_place(member.worker)
            key = _PLACE + b"%d/%d." % (member.worker, self._asked[member.worker])
            self._server.set(key, place.encode())
            self._told[member.worker] = key

    def notify(self, added: bool, removed: bool) -> None:
        """Tells all workers that hosts came or went."""
        self._updates += 1
        kinds = [word for word, is_so in ((b"added", added), (b"removed", removed)) if is_so]
        self._server.set(_UPDATE + b"%d." % self._updates, b" ".join(kinds))

    def ended(self, workers: Iterable[int]) -> None:
        """Workers have ended: nobody is to wait for them in a start."""
        members = {member.worker for member in self._members}
        gone = list(workers)
        if self._store is not None and not members.isdisjoint(gone):
            self._store.abandon_start()
        for worker in gone:
            self._forget_place(worker)

    def lost(self, workers: Collection[int]) -> None:
        """Workers are out of reach, and may live and train: the ranks of their generation, who may see no
        error, stop at a commit and ask for a place in the next one.
        """
        if any(member.worker in workers for member in self._members):
            self.notify(added=False, removed=True)

    def ranks_ended(self, ranks: Collection[int]) -> None:
        """Without effect: see ``ended``."""

    def late(self) -> None:
        """Nobody: see ``silent``."""

    def remarks(self, size: int) -> list[str]:
        """See ``supervisor.Testimony``."""
        return [never_started(size)] if size > 1 and not self._asked else self._server.remarks(size)

    def verdicts(self, ended: Collection[int] = (), seconds: float = 0.0) -> list[Verdict]:
        """What the ranks of the current generation hold for the cause of its end."""
        if self._store is None:
            return []
        late = self._store.late()
        return [*self._store.verdicts((), 0.0), *([late] if late is not None else [])]

    def cause(self) -> str:
        """What has ended the current generation, which all its ranks have left alive, as the first of them
        says it; empty: nobody does. What they said before they left may not be read yet.
        """
        if self._store is None:
            return ""
        verdicts = self._store.verdicts([member.rank for member in self._members], _LEFT_SECONDS)
        return next((each.reason for each in verdicts if each.kind in _OF_LIVING), "")

    @property
    def is_starting(self) -> bool:
        """Whether ranks of the current generation have not come through their start."""
        return self._store is not None and self._store.is_starting()

    def overdue(self, now: float) -> list[int]:
        """Once, the workers that have neither come through the start of the generation nor given it up."""
        if now < self._overdue_at or self._store is None:
            return []
        self._overdue_at = _NEVER
        workers = {member.rank: member.worker for member in self._members}
        return [workers[rank] for rank in self._store.unlinked()]

    def next_time(self) -> float:
        """When ``overdue`` has something to tell (infinity: never)."""
        return self._overdue_at if self.is_starting else _NEVER

    def silent(self) -> list[tuple[int, int]]:
        """The workers that others have given up, or that have not come through the start, each with who says
        so.
        """
        workers = {member.rank: member.worker for member in self._members}
        accused: set[int] = set()
        said: list[tuple[int, int]] = []
        for verdict in self.verdicts():
            # Who is cut off from the others holds them for silent, and says so later than they do.
            if verdict.kind not in (Kind.SILENT, Kind.ABSENT) or verdict.observer in accused:
                continue
            if verdict.culprit in workers:
                accused.add(verdict.culprit)
                said.append((workers[verdict.culprit], workers[verdict.observer]))
        return said

    def apart(self) -> list[tuple[int, list[int]]]:
        """The workers that did not reach several others in the start of their generation, each with these."""
        workers = {member.rank: member.worker for member in self._members}
        return [
            (workers[verdict.observer], [workers[rank] for rank in verdict.absent])
            for verdict in self.verdicts()
            if verdict.culprit is None and verdict.absent
        ]

    def close(self) -> None:
        """Ends both stores."""
        self._close_store()
        self._server.close()

    def _close_store(self) -> None:
        """That of the last generation: all who were in it have left it, or have ended."""
        if self._store is not None:
            self._store.close()
        self._store, self._overdue_at = None, _NEVER

    def _forget_place(self, worker: int) -> None:
        """It has got the place, as it has asked for another one, or has ended."""
        if key := self._told.pop(worker, None):
            self._server.set(key, None)

    def _hear(self, worker: int, key: bytes, value: bytes) -> str:
        """On the thread of the store."""
        prefix, slash, number = key.partition(b"/")
        if number != b"%d" % worker:
            return "a worker speaks for itself only"
        if prefix + slash == _WAITING:
            if not _REQUEST.fullmatch(value):
                return "a worker that asks for a place tells how often it has asked, and a number of commits"
            asked, self._commits[worker] = map(int, value.split())
            if asked == self._asked[worker]:  # once more, over another connection
                return ""
            self._asked[worker] = asked
        if value == DURABLE:
            self._durable.add(worker)
        self._said[prefix + slash].append(worker)
        self._wake()
        return ""


def _emptied(queue: collections.deque[int]) -> list[int]:
    """What was in it; another thread may append meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]
