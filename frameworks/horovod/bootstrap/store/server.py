"""The rendezvous store: a key-value space in the launcher, on one thread, for authenticated ranks only."""

import collections
import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..errors import AuthenticationError, BootstrapError
from ..network import endpoints
from ..network.auth import LAUNCHER_RANK, Keys, Role, Terms
from ..network.frames import Opener, Sealer
from ..network.gatekeeper import Gatekeeper, Say
from ..text import escaped
from .arrivals import Arrivals
from .claims import Claims
from .messages import MAX_KEY, TOKEN_BYTES, Tag, decode, encode, fits, integer, owner
from .remarks import PREFIX, Remarks, never_started
from .rounds import Rounds, moved
from .verdicts import Verdict, from_fields
from .waits import Wait, Waits

MEMORY_QUOTA = 64 << 20
_UNSENT_LIMIT = 16 << 20
_ENTRY_OVERHEAD = 128
_RECEIVE_BYTES = 1 << 16
_WAIT_LIMIT_MS = 24 * 3600 * 1000

# Takes what a rank sets under a key, in place of the table; returns why it refuses it, or "".
Taker = Callable[[int, bytes, bytes], str]


@dataclass
class _Client:
    """One admitted connection: for requests to the store, and by which a rank watches the launcher."""

    connection: socket.socket
    terms: Terms
    sealer: Sealer
    opener: Opener
    acts: bool = False  # as its rank: it has claimed it
    offset: int = 0  # of its starts: see rounds.py
    refusal: str = ""  # what every request of it is answered with
    unsent: bytearray = field(default_factory=bytearray)
    waiting: "Wait[_Client] | None" = None


class StoreServer:
    """Serves until ``close``; ``address`` is what clients dial: a Unix socket of that ``name`` or of a random
    one, or (``kind`` "tcp") a port, one of ``ports`` or any, at each of the addresses ``hosts`` of this host,
    with commas between. The thread owns all sockets and the table.

    ``of_one_program``: it ends with the program that the ranks run now; others outlive it.
    ``dropped`` counts connections that did not prove to belong to the job; ``say`` is told of them, on that
    thread, and of a rank that is claimed twice.
    """

    def __init__(
        self,
        secret: bytes,
        size: int,
        kind: str = "unix",
        say: Say = lambda _: None,
        hosts: Sequence[str] = (endpoints.LOOPBACK,),
        name: str | None = None,
        ports: range | None = None,
        of_one_program: bool = False,
    ) -> None:
        self._size = size
        self._say = say
        self._claims = Claims()
        self._rounds = Rounds()
        self._of_one_program = of_one_program
        self._table: dict[bytes, bytes | memoryview] = {}
        self._remarks = Remarks()
        self._takers: dict[bytes, Taker] = {PREFIX.encode(): self._remarks.take}  # by the prefix of the keys
        self._memory = 0
        self._clients: dict[socket.socket, _Client] = {}
        self._changed = threading.Condition()
        self._verdicts: dict[int, Verdict] = {}  # by observer; guarded by _changed, like the next
        self._links: dict[int, int] = {}  # links to the launcher that each rank has open
        self._late: Verdict | None = None
        self._arrivals = Arrivals(size, float("inf"))
        self._on_news: Callable[[], None] = lambda: None
        self._waits: Waits[_Client] = Waits()
        self._ended: frozenset[int] = frozenset()  # ranks that will set nothing more
        self._given: collections.deque[tuple[bytes, bytes | None]] = collections.deque()  # by ``set``
        self._is_abandoned = False
        tcp = kind == "tcp"
        listeners = endpoints.listen_at(hosts, ports) if tcp else [endpoints.listen(kind, name=name)]
        self._selector = selectors.DefaultSelector()
        self._wake_receive, self._wake_send = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.address = ",".join(address for _, address in listeners)
        sockets = [listener for listener, _ in listeners]
        self._gate = Gatekeeper(sockets, self._selector, secret, self._expects, self._admit, say)
        self._selector.register(self._wake_receive, selectors.EVENT_READ, self._on_wake)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="horovod-store", daemon=True)

    def start(self) -> None:
        """Begins to serve. Before it, connections already queue at ``address``. Raises OSError where the
        system has no thread for it.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from None

    def publish(self, key: bytes, value: bytes | memoryview) -> None:
        """Sets a key for the ranks to read, before ``start``. It belongs to the launcher: the limit of memory
        does not concern it.
        """
        self._table[key] = value

    def set(self, key: bytes, value: bytes | None) -> None:
        """Sets a key for the ranks to read, as ``publish`` does, or takes it back (None); on any thread."""
        self._given.append((key, value))
        self._wake()

    def divert(self, prefix: bytes, taker: Taker) -> None:
        """Hands what ranks set under keys that begin with ``prefix`` to ``taker``, with the rank, on the
        thread of the store. Before ``start``.
        """
        self._takers[prefix] = taker

    def watch_start(self, seconds: float, on_news: Callable[[], None]) -> None:
        """Calls ``on_news``, on the thread of the store, for each verdict, and when ranks have not come
        through their start within ``seconds`` and none of them says so: ``late`` has it. Before ``start``.
        """
        self._arrivals, self._on_news = Arrivals(self._size, seconds), on_news

    def late(self) -> Verdict | None:
        """Who has not come through the start, once; the observer is one of them."""
        with self._changed:
            late, self._late = self._late, None
            return late

    def is_starting(self) -> bool:
        """Whether ranks have not come through their start yet."""
        return not self._arrivals.are_all_linked

    def unlinked(self) -> list[int]:
        """The ranks that have not come through their start yet."""
        return [rank for rank in range(self._size) if not self._arrivals.is_linked(rank)]

    @property
    def dropped(self) -> int:
        """Connections turned away so far."""
        return self._gate.refusals.count

    def verdicts(self, ended: Collection[int], seconds: float) -> list[Verdict]:
        """What the ranks hold for the cause of the job's end, in the order in which they said so.

        Waits at most ``seconds`` until everything that the ranks in ``ended`` have sent before their end is
        read.
        """
        with self._changed:
            self._changed.wait_for(lambda: not any(self._links.get(rank) for rank in ended), seconds)
            return list(self._verdicts.values())

    def remarks(self, size: int) -> list[str]:
        """What is to be said at the end of a job of ``size`` processes that went well."""
        unlinked = len(self.unlinked()) if size == self._size else 0
        return [never_started(size)] if size > 1 and unlinked == size else self._remarks.lines(size)

    def ranks_ended(self, ranks: Collection[int]) -> None:
        """Whoever waits for what these ranks have not set, now or later, is told so at once."""
        if ranks:
            self._ended |= set(ranks)
            self._wake()

    def abandon_start(self) -> None:
        """Turns away ranks that have not come through their start, now and later; others keep their links."""
        self._is_abandoned = True
        self._wake()

    def close(self) -> None:
        """Ends the thread and closes every connection; ranks see it as the launcher's end."""
        if self._closing:
            return
        self._closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._gate.close()
        for client in list(self._clients.values()):
            client.connection.close()
        self._selector.close()
        os.close(self._wake_receive)
        os.close(self._wake_send)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it is awake
            os.write(self._wake_send, b"\0")

    def _expects(self, terms: Terms) -> bool:
        is_for_store = terms.role == Role.LAUNCHER and terms.acceptor == LAUNCHER_RANK
        return is_for_store and 0 <= terms.connector < self._size

    def _serve(self) -> None:
        while not self._closing:
            times = self._gate.next_deadline(), self._arrivals.deadline, self._waits.next_deadline()
            deadline = min(times)
            timeout = None if deadline == float("inf") else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(timeout):
                key.data()
            self._gate.expire()
            self._answer_all(self._waits.expired(time.monotonic()))
            self._expire_start()

    def _on_wake(self) -> None:
        os.read(self._wake_receive, _RECEIVE_BYTES)
        while self._given:
            key, value = self._given.popleft()
            if value is None:
                self._table.pop(key, None)
            else:
                self._keep(key, value)
        if self._is_abandoned:
            for client in list(self._clients.values()):
                if not self._arrivals.is_linked(client.terms.connector):
                    self._discard(client)
        if self._ended:
            self._answer_all(self._waits.on(self._is_hopeless))

    def _is_hopeless(self, key: bytes) -> bool:
        return owner(key.decode(errors="replace")) in self._ended

    def _admit(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        if self._is_abandoned and not self._arrivals.is_linked(terms.connector):
            return connection.close()  # after the proof: who is refused at the gate tries again
        client = _Client(connection, terms, Sealer(keys.send), Opener(keys.receive))
        self._clients[connection] = client
        self._count_link(terms.connector, 1)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._on_ready(client))

    def _take_claim(self, client: _Client, token: bytes, name: bytes) -> None:
        process = escaped(name[:MAX_KEY].decode(errors="replace"))
        client.refusal = self._claims.take(client.terms.connector, token, process)
        if client.refusal:
            self._say(client.refusal)
            return self._respond(client, Tag.REFUSED, [client.refusal.encode()])
        client.acts = True
        if client.terms.generation > 0:  # a new start: what ended the last one is over
            client.offset = self._rounds.offset(client.terms, token, self._arrivals)
            if client.offset and self._of_one_program:
                return self._respond(client, Tag.OVER, [])
            with self._changed:
                self._verdicts.pop(client.terms.connector, None)
        self._respond(client, Tag.OK, [])

    def _on_ready(self, client: _Client) -> None:
        """Serves one client; whatever is wrong with it ends this connection and no other."""
        try:
            if client.unsent:
                self._flush(client)
            self._receive(client)
        except (BlockingIOError, InterruptedError):
            return
        except (AuthenticationError, BootstrapError, OSError):
            self._discard(client)

    def _receive(self, client: _Client) -> None:
        data = client.connection.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError
        for payload in client.opener.feed(data):
            if client.waiting is not None:
                raise BootstrapError("a request before the answer to the last one")
            self._handle(client, *decode(payload))

    def _handle(self, client: _Client, tag: Tag, fields: list[bytes]) -> None:
        if self._is_abandoned and not self._arrivals.is_linked(client.terms.connector):
            raise BootstrapError("this start is given up")
        if client.refusal:
            self._respond(client, Tag.REFUSED, [client.refusal.encode()])
            return
        fields = moved(tag, fields, client.offset)
        if not client.acts:
            if tag != Tag.CLAIM or len(fields) != 2 or len(fields[0]) != TOKEN_BYTES:
                raise BootstrapError("a request before the claim")
            self._take_claim(client, *fields)
        elif tag == Tag.VERDICT:
            self._take_verdict(client.terms.connector, fields)
        elif tag == Tag.SET and len(fields) == 2:
            self._respond(client, *self._put(client.terms.connector, fields[0], fields[1]))
        elif tag == Tag.ADD and len(fields) == 2:
            total = integer(bytes(self._table.get(fields[0], b"0"))) + integer(fields[1])
            tag, response = self._put(client.terms.connector, fields[0], b"%d" % total)
            self._respond(client, tag, response or [b"%d" % total])
        elif tag == Tag.WAIT and len(fields) >= 1:
            self._wait(client, integer(fields[0]), fields[1:])
        else:
            raise BootstrapError("not a request")

    def _count_link(self, rank: int, change: int) -> None:
        with self._changed:
            self._links[rank] = self._links.get(rank, 0) + change
            self._changed.notify_all()

    def _take_verdict(self, observer: int, fields: list[bytes]) -> None:
        verdict = from_fields(observer, fields, self._size)
        self._arrivals.stand_down()
        with self._changed:
            self._verdicts.setdefault(observer, verdict)
        self._on_news()

    def _expire_start(self) -> None:
        verdict = self._arrivals.overdue(time.monotonic())
        if verdict is not None:
            with self._changed:
                self._late = self._verdicts[verdict.observer] = verdict
            self._on_news()

    def _put(self, rank: int, key: bytes, value: bytes) -> tuple[Tag, list[bytes]]:
        if not 0 < len(key) <= MAX_KEY:
            return Tag.REFUSED, [b"a key has 1 to %d bytes" % MAX_KEY]
        for prefix, taker in self._takers.items():
            if key.startswith(prefix):
                refusal = taker(rank, key, value)
                return (Tag.REFUSED, [refusal.encode()]) if refusal else (Tag.OK, [])
        old = self._table.get(key)
        growth = len(value) - len(old) if old is not None else len(key) + len(value) + _ENTRY_OVERHEAD
        if self._memory + growth > MEMORY_QUOTA:
            return Tag.REFUSED, [b"the store is full (%d MiB)" % (MEMORY_QUOTA >> 20)]
        self._memory += growth
        self._arrivals.note(rank, key, time.monotonic())
        self._keep(key, value)
        return Tag.OK, []

    def _keep(self, key: bytes, value: bytes) -> None:
        self._table[key] = value
        self._answer_all(self._waits.found(key))

    def _wait(self, client: _Client, milliseconds: int, keys: list[bytes]) -> None:
        wait = client.waiting = Wait(client, keys, {key for key in keys if key not in self._table})
        if not wait.missing or milliseconds <= 0 or any(map(self._is_hopeless, wait.missing)):
            self._answer(wait)
            return
        self._waits.add(wait, time.monotonic() + min(milliseconds, _WAIT_LIMIT_MS) / 1000)

    def _answer_all(self, waits: Sequence[Wait[_Client]]) -> None:
        for wait in waits:
            if wait.is_open:  # to answer one may end others
                self._answer(wait)

    def _answer(self, wait: Wait[_Client]) -> None:
        """Values when all are there, none when they are too large together; otherwise the keys that never
        came. Then the client may ask again.
        """
        self._waits.end(wait)
        missing = [key for key in wait.keys if key in wait.missing]
        hopeless = [key for key in missing if self._is_hopeless(key)]
        try:
            if missing:
                self._respond(wait.client, *((Tag.ENDED, hopeless) if hopeless else (Tag.ABSENT, missing)))
            else:
                values = [self._table[key] for key in wait.keys]
                self._respond(wait.client, Tag.OK, values if fits(values) or len(values) == 1 else [])
        except OSError:
            self._discard(wait.client)

    def _respond(self, client: _Client, tag: Tag, fields: Sequence[bytes | memoryview]) -> None:
        if not fits(fields):
            tag, fields = Tag.REFUSED, [b"the value is too large for an answer"]
        payload = encode(tag, fields)
        client.unsent += client.sealer.seal(payload)
        if len(client.unsent) > _UNSENT_LIMIT:
            raise ConnectionError("the peer does not take its answers")
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while client.unsent:
                del client.unsent[: client.connection.send(client.unsent)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        key = self._selector.get_key(client.connection)
        if key.events != events:
            self._selector.modify(client.connection, events, key.data)

    def _discard(self, client: _Client) -> None:
        if self._clients.pop(client.connection, None) is None:
            return
        if client.waiting is not None:
            self._waits.end(client.waiting)
        self._selector.unregister(client.connection)
        client.connection.close()
        if client.acts:
            self._claims.release(client.terms.connector)
        self._count_link(client.terms.connector, -1)
