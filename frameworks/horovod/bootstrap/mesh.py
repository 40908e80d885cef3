"""Authenticated links between the ranks of a job.

Every rank listens at addresses of its own, tells them the others through the store, dials those of its
neighbours that have a lower rank and accepts the higher ones. Ranks of one host meet at Unix sockets, unless
shared memory is not wanted; all others meet over TCP. All handshakes of a rank, in both directions,
run side by side in one loop that only waits for events.
"""

import collections
import contextlib
import logging
import mmap
import os
import random
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import endpoints
from .auth import HANDSHAKE_SECONDS, Connector, Keys, Role, Terms
from .errors import AuthenticationError, BootstrapError, SharedMemoryError, StartTimeoutError
from .gatekeeper import Gatekeeper
from .identity import Identity
from .neighbours import Neighbours, everybody, sharing, watched
from .places import Place, decode, number_hosts, place_of
from .store_client import StoreClient
from .text import escaped, log

_log = logging.getLogger("horovod")

Link = tuple[int, int, int, bytes, bytes]

WIRINGS: dict[str, tuple[str, dict[Role, Neighbours]]] = {
    "shm": ("unix", {Role.WATCH: watched, Role.SHARE: sharing}),
    "tcp": ("tcp", {Role.WATCH: everybody, Role.CONTROL: everybody, Role.DATA: everybody}),
}
_BETWEEN_HOSTS = {Role.WATCH: everybody, Role.CONTROL: everybody, Role.DATA: everybody}
_RETRY_SECONDS = 0.02
# Of the start timeout, for the links. Who waits for a neighbour behind them, in the core, waits longer: so
# the rank that cannot be reached is named by those who see it.
_LINKING_SHARE = 0.5
_MOST_DIALS = 16  # of one rank at a time: many at once would displace each other at a busy acceptor


class Mesh(NamedTuple):
    """The wiring that was made; the number of each rank's host (empty: there is one); its links (descriptor,
    peer, role, send key, receive key), whose descriptors are the caller's; and when all ranks had arrived, on
    the clock of time.monotonic: about the same moment for all.
    """

    wiring: str
    hosts: list[int]
    links: list[Link]
    arrived: float


def connect_mesh(
    identity: Identity,
    generation: int,
    store: StoreClient,
    secret: bytes,
    wiring: str,
    deadline: float,
    timeout: float,
) -> Mesh:
    """Waits for all ranks and makes the links to this rank's neighbours.

    "shm": on one host Unix sockets, to a few ranks only, one for each role that needs it; on several hosts
    also three links to every other rank, over TCP where it is on another host. "tcp": TCP, three to every
    other rank. "auto": "shm", or "tcp" when the system refuses shared memory to any of the ranks, which
    is logged. Sockets are blocking and close-on-exec. Raises BootstrapError when not all ranks have arrived
    by ``deadline``, when the links are not made within half of ``timeout`` seconds after that, or when shared
    memory is asked for and refused; nothing stays open then.
    """
    if wiring not in (*WIRINGS, "auto"):
        raise ValueError(f"unknown wiring {wiring!r}: expected one of {', '.join(WIRINGS)} or auto")
    if wiring == "tcp":
        return _connect(identity, generation, store, secret, wiring, deadline, timeout)
    try:
        return _connect(identity, generation, store, secret, "shm", deadline, timeout)
    except SharedMemoryError as error:
        if wiring == "shm":
            raise
        if identity.rank == error.rank:
            _log.warning("[%d] warning: %s; the job goes on over TCP, which is slower", error.rank, error)
        deadline = time.monotonic() + _LINKING_SHARE * timeout
        return _connect(identity, generation, store, secret, "tcp", deadline, timeout, "mesh-again")


def _connect(
    identity: Identity,
    generation: int,
    store: StoreClient,
    secret: bytes,
    wiring: str,
    deadline: float,
    timeout: float,
    scope: str = "mesh",
) -> Mesh:
    rank, size = identity.rank, identity.size
    with contextlib.ExitStack() as stack:
        listeners = _listen(identity, wiring, store.own_host)
        for listener, _address in listeners:
            stack.callback(listener.close)
        log("debug", rank, f"listens for other ranks at {escaped(', '.join(a for _, a in listeners))}")
        refusal = shared_memory_refusal() if wiring == "shm" else None
        keys = [f"{generation}/{scope}/{peer}" for peer in range(size)]
        store.set(keys[rank], place_of(identity, refusal, [a for _, a in listeners]).encode())
        # Of all, although a few may be dialled: so every rank knows who is missing.
        left = max(0.0, deadline - time.monotonic())
        places = [decode(peer, value) for peer, value in enumerate(store.wait(keys, left))]
        arrived = time.monotonic()
        for peer, place in enumerate(places):
            if place.refusal:
                raise SharedMemoryError(peer, place.refusal)
        hosts = number_hosts(places)
        wanted = _wanted(rank, size, wiring, hosts)
        stack.pop_all()  # the linker's from here on
    with _Linker(rank, generation, secret, wanted, [listener for listener, _ in listeners]) as mesh:
        # The nearest first, so that the ranks do not all knock at rank 0.
        for peer, role in sorted(wanted, reverse=True):
            if peer < rank:
                mesh.dial(_address_of(places[peer], not hosts or hosts[peer] == hosts[rank]), peer, role)
        mesh.run(arrived, _LINKING_SHARE * timeout)
        return Mesh(wiring, hosts, mesh.take_links(), arrived)


def _listen(identity: Identity, wiring: str, host: str) -> list[tuple[socket.socket, str]]:
    """At a Unix socket for the ranks of this host, at a port for those of others."""
    listeners = [endpoints.listen("unix")] if wiring == "shm" else []
    try:
        if identity.local_size < identity.size:
            listeners.append(endpoints.listen("tcp", host))
        elif wiring == "tcp":
            listeners.append(endpoints.listen("tcp"))
    except BaseException:
        for listener, _address in listeners:
            listener.close()
        raise
    return listeners


def _wanted(rank: int, size: int, wiring: str, hosts: list[int]) -> set[tuple[int, Role]]:
    """(peer, role) of every link of this rank."""
    roles = WIRINGS[wiring][1] if not hosts else _BETWEEN_HOSTS
    wanted = {(peer, role) for role, linked in roles.items() for peer in linked(rank, size)}
    if hosts and wiring == "shm":
        local = [peer for peer in range(size) if hosts[peer] == hosts[rank]]
        wanted |= {(local[place], Role.SHARE) for place in sharing(local.index(rank), len(local))}
    return wanted


def _address_of(place: Place, is_near: bool) -> str:
    return place.addresses[0 if is_near else -1]


def shared_memory_refusal() -> str | None:
    """Why this process cannot make memory that it could share; None: it can."""
    try:
        descriptor = os.memfd_create("horovod", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, mmap.PAGESIZE)
            mmap.mmap(descriptor, mmap.PAGESIZE).close()
        finally:
            os.close(descriptor)
    except OSError as error:
        return str(error)
    return None


@dataclass
class _Dial:
    """One attempt after another to reach a lower rank."""

    address: str
    terms: Terms
    retry_at: float
    gives_up_at: float = float("inf")
    connection: socket.socket | None = None
    connector: Connector | None = None


class _Linker:
    """The loop. Sockets belong to it until ``take_links``; leaving the context closes whatever is left."""

    def __init__(
        self,
        rank: int,
        generation: int,
        secret: bytes,
        wanted: set[tuple[int, Role]],
        listeners: list[socket.socket],
    ) -> None:
        self._rank = rank
        self._generation = generation
        self._secret = secret
        self._wanted = wanted
        self._queued: collections.deque[_Dial] = collections.deque()
        self._dials: list[_Dial] = []  # begun and not done
        self._links: dict[tuple[int, Role], tuple[socket.socket, Keys]] = {}
        self._selector = selectors.DefaultSelector()
        self._gates = [
            Gatekeeper(listener, self._selector, secret, self._expects, self._admit, self._say)
            for listener in listeners
        ]

    def __enter__(self) -> "_Linker":
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._gates:
            gate.close()
        for dial in self._dials:
            self._hang_up(dial)
        for connection, _keys in self._links.values():
            connection.close()
        self._selector.close()

    def dial(self, address: str, rank: int, role: Role) -> None:
        """Queues a call to ``rank``; ``run`` carries it out."""
        terms = Terms(role, self._rank, rank, self._generation)
        self._queued.append(_Dial(address, terms, time.monotonic()))

    def run(self, begin: float, timeout: float) -> None:
        """Until every link is there, at most ``timeout`` seconds from ``begin``."""
        deadline = begin + timeout
        while len(self._links) < len(self._wanted):
            while self._queued and len(self._dials) < _MOST_DIALS:
                self._dials.append(self._queued.popleft())
                self._start(self._dials[-1])
            now = time.monotonic()
            if now >= deadline:
                raise self._missing(timeout)
            until = min([deadline, *(gate.next_deadline() for gate in self._gates), *self._dial_times()])
            for key, _ in self._selector.select(max(0.0, until - now)):
                key.data()
            for gate in self._gates:
                gate.expire()
            self._retry_late_dials()

    def take_links(self) -> list[Link]:
        """Hands the sockets over, in the order of peer and role."""
        ordered = sorted(self._links.items())
        self._links.clear()
        for _, (connection, _keys) in ordered:
            connection.setblocking(True)
        return [
            (connection.detach(), peer, int(role), keys.send, keys.receive)
            for (peer, role), (connection, keys) in ordered
        ]

    def _say(self, text: str) -> None:
        _log.warning("[%d] warning: %s", self._rank, text)

    def _expects(self, terms: Terms) -> bool:
        return (
            terms.generation == self._generation
            and terms.acceptor == self._rank
            and terms.connector > self._rank
            and (terms.connector, terms.role) in self._wanted
        )

    def _admit(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._keep(terms.connector, terms.role, connection, keys)

    def _keep(self, peer: int, role: Role, connection: socket.socket, keys: Keys) -> None:
        older = self._links.pop((peer, role), None)
        if older is not None:  # the peer gave up on it and dialled again
            older[0].close()
        self._links[peer, role] = connection, keys

    def _start(self, dial: _Dial) -> None:
        try:
            dial.connection = endpoints.start_connect(dial.address)
        except OSError:
            self._try_again(dial)
            return
        dial.connector = None
        dial.gives_up_at = time.monotonic() + HANDSHAKE_SECONDS
        self._selector.register(dial.connection, selectors.EVENT_WRITE, lambda: self._on_ready(dial))

    def _on_ready(self, dial: _Dial) -> None:
        if dial.connection is None:
            return
        try:
            if dial.connector is None:
                self._greet(dial, dial.connection)
            else:
                self._listen(dial, dial.connection, dial.connector)
        except (BlockingIOError, InterruptedError):
            return
        except PermissionError as error:
            raise BootstrapError(f"rank {self._rank}: rank {dial.terms.acceptor}: {error}") from None
        except AuthenticationError as error:
            raise AuthenticationError(f"rank {self._rank}: rank {dial.terms.acceptor}: {error}") from None
        except OSError:
            self._try_again(dial)

    def _greet(self, dial: _Dial, connection: socket.socket) -> None:
        endpoints.finish_connect(connection)
        connector = Connector(self._secret, dial.terms)
        _send_whole(connection, connector.greeting())
        dial.connector = connector
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._on_ready(dial))

    def _listen(self, dial: _Dial, connection: socket.socket, connector: Connector) -> None:
        data = connection.recv(connector.wanted())
        if not data:
            raise ConnectionResetError
        answer = connector.feed(data)
        if answer:
            _send_whole(connection, answer)
        if connector.keys is not None:
            self._selector.unregister(connection)
            dial.connection = None
            self._dials.remove(dial)
            self._keep(dial.terms.acceptor, dial.terms.role, connection, connector.keys)

    def _try_again(self, dial: _Dial) -> None:
        self._hang_up(dial)
        dial.retry_at = time.monotonic() + _RETRY_SECONDS * random.uniform(0.5, 1.5)

    def _hang_up(self, dial: _Dial) -> None:
        if dial.connection is not None:
            self._selector.unregister(dial.connection)
            dial.connection.close()
            dial.connection, dial.gives_up_at = None, float("inf")

    def _dial_times(self) -> Iterator[float]:
        return (dial.retry_at if dial.connection is None else dial.gives_up_at for dial in self._dials)

    def _retry_late_dials(self) -> None:
        now = time.monotonic()
        for dial in self._dials:
            if dial.connection is not None and dial.gives_up_at <= now:
                self._try_again(dial)
            if dial.connection is None and dial.retry_at <= now:
                self._start(dial)

    def _missing(self, timeout: float) -> StartTimeoutError:
        ranks = sorted({rank for rank, role in self._wanted - self._links.keys()})
        return StartTimeoutError(
            f"rank {self._rank}: no link to rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} "
            f"within {timeout:g} s although they have arrived. Look whether they are stopped or have failed",
            ranks,
        )


def _send_whole(connection: socket.socket, data: bytes) -> None:
    """A few dozen bytes into an empty buffer; a peer without room for them is dialled again."""
    if connection.send(data) != len(data):
        raise ConnectionError("short send")
