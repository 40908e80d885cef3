"""A worker of an elastic job: which rank it is in each generation, and word that the job could change.

The launcher numbers its workers, each a process, and the generations, each a set of ranks. A worker asks for
its place in the next generation and waits; meanwhile the launcher sees who else is left and who has come. In
a store of its own, which lives as long as the job, it says so:

    waiting/<worker>           set by a worker: it asks, and tells which of its requests this is, and how many
                               commits the training has made
    holding/<worker>           set by a worker: it has the state of the training, as it has synchronized, and
                               "durable" if it writes it to disk, too
    leaving/<worker>           set by a worker: it ends in good order, because it was asked to
    place/<worker>/<count>.    set by the launcher: the answer to the worker's request of that number
    update/<number>.           set by the launcher: hosts came or went since the generation began
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import NamedTuple

from .errors import AbandonedError, BootstrapError, LauncherEndedError
from .start_settings import (
    ADDRESS_VARIABLE,
    STORE_VARIABLE,
    WORKER_VARIABLE,
    host_timeout,
)
from .store.client import StoreClient
from .store.line import Line

MOST_WORKERS = 1 << 20
DURABLE = b"durable"


class Place(NamedTuple):
    """The place of a worker in a generation. ``store`` is where its ranks meet; ``updates`` is the number of
    the last update that this generation takes account of. ``has_newcomers``: not all of its ranks were in the
    one before, or not all have come through the start of that.
    """

    generation: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    store: str
    updates: int
    has_newcomers: bool

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self._asdict()).encode()

    def export(self, environ: MutableMapping[str, str]) -> None:
        """Sets the variables that tell a process which rank it is."""
        numbers = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        environ.update({f"HOROVOD_{name.upper()}": str(getattr(self, name)) for name in numbers})
        environ[STORE_VARIABLE] = self.store
        environ["RANK"], environ["WORLD_SIZE"] = str(self.rank), str(self.size)
        environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"] = str(self.local_rank), str(self.local_size)


def decode_place(data: bytes) -> Place:
    """Raises BootstrapError for what ``Place.encode`` does not make."""
    try:
        return Place(**json.loads(data))
    except (TypeError, ValueError):
        raise BootstrapError("the launcher tells a place in a form that this version does not know") from None


def connect(environ: Mapping[str, str], secret: bytes, timeout: float) -> StoreClient:
    """A connection to the launcher, as the worker that the environment tells. Raises ValueError for a wrong
    environment, BootstrapError when the launcher does not answer.
    """
    return StoreClient(environ[ADDRESS_VARIABLE], secret, _number(environ[WORKER_VARIABLE]), 0, timeout)


class Membership:
    """This worker's channel to the launcher. ``place`` is its last place, ``has_missed`` whether it did not
    come through the start in the one before, ``commits`` how many the training has made, as far as this
    worker knows.
    """

    def __init__(self, environ: Mapping[str, str], secret: bytes, timeout: float) -> None:
        """Raises ValueError for a wrong environment, BootstrapError when the launcher does not answer."""
        self.place: Place | None = None
        self.has_missed = False
        self.commits = 0
        self._address = environ[ADDRESS_VARIABLE]
        self._worker = _number(environ[WORKER_VARIABLE])
        self._secret = secret
        self._timeout = timeout
        self._patience = max(timeout, host_timeout(environ))
        self._line = self._new_line()
        self._asked = 0
        self._has_told_state = False
        self._is_unused = False  # this worker has not come through the start in its last place
        self._watcher: threading.Thread | None = None

    def join(self) -> Place:
        """Waits for a place in the next generation, as long as the launcher lets it wait."""
        self._asked += 1
        try:
            self._line.set(f"waiting/{self._worker}", b"%d %d" % (self._asked, self.commits))
            told = self._line.wait_for(f"place/{self._worker}/{self._asked}.")
        except AbandonedError as error:
            raise LauncherEndedError(f"the launcher of this elastic job has ended: {error}") from None
        place = decode_place(told)
        # Those who have come through that start have met a failure in it, and newcomers were in it perhaps.
        self.has_missed, self._is_unused = self._is_unused, True
        self.place = place._replace(has_newcomers=place.has_newcomers or self.has_missed)
        return self.place

    def use(self) -> None:
        """This worker has come through the start in its place."""
        self._is_unused = False

    def hold(self, is_durable: bool = False) -> None:
        """Says, once, that this worker has the state of the training; ``is_durable``: on disk, too."""
        if not self._has_told_state:
            self._has_told_state = True
            with contextlib.suppress(BootstrapError):  # without a launcher, nobody wants to know
                self._line.set(f"holding/{self._worker}", DURABLE if is_durable else b"")

    def leave(self) -> bool:
        """Says that this worker is about to end in good order. Returns whether the launcher has heard it."""
        try:
            self._line.set(f"leaving/{self._worker}", b"")
        except BootstrapError:
            return False
        return True

    @property
    def rank(self) -> int:
        """The last one; 0 before the first."""
        return 0 if self.place is None else self.place.rank

    def watch(self, callback: Callable[[int, bool, bool], None]) -> None:
        """Calls ``callback``, on a thread of its own, with the number of each update, whether hosts were
        added, and whether some were removed. Once in the life of this process.
        """
        if self._watcher is None:
            self._watcher = threading.Thread(
                target=self._watch, args=(callback,), name="hvd-membership", daemon=True
            )
            self._watcher.start()

    def _watch(self, callback: Callable[[int, bool, bool], None]) -> None:
        number = 0 if self.place is None else self.place.updates
        try:
            line = self._new_line()
            while True:
                number += 1
                kinds = line.wait_for(f"update/{number}.").split()
                if self.place is None or number > self.place.updates:
                    callback(number, b"added" in kinds, b"removed" in kinds)
        except BootstrapError:  # the launcher has ended: the engine says so
            return

    def _new_line(self) -> Line:
        return Line(self._connect, self._timeout, self._patience)

    def _connect(self, timeout: float) -> StoreClient:
        return StoreClient(self._address, self._secret, self._worker, 0, timeout)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) >= MOST_WORKERS:
        raise ValueError(f"{WORKER_VARIABLE}: horovodrun sets this to the number of a worker")
    return int(text)
