"""Accepts connections, authenticates them side by side in one loop, and lets only proven peers through.

A connection that is not authenticated costs one descriptor and at most one small frame of memory, for at
most HANDSHAKE_SECONDS until it says who it is, and then PROOF_SECONDS; there are at most UNPROVEN_LIMIT of
them for each socket that listens. A newcomer beyond the limit displaces the oldest: an honest peer needs
milliseconds, so a crowd of idle connections cannot keep it out.
"""

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..errors import AuthenticationError, TooEarlyError
from . import endpoints
from .auth import HANDSHAKE_SECONDS, Acceptor, Keys, Policy, Terms

UNPROVEN_LIMIT = 64
PROOF_SECONDS = 30.0  # a peer that has to share its cores with many others may be slow
_EXHAUSTED_SECONDS = 0.01
_QUIET_SECONDS = 10.0

Admit = Callable[[socket.socket, Terms, Keys], None]
Say = Callable[[str], None]


class Refusals:
    """Counts connections that were turned away. Tells of the first at once, then of all that came meanwhile
    at most every ten seconds, so that a crowd fills no log.
    """

    def __init__(self, say: Say) -> None:
        self.count = 0
        self._say = say
        self._untold = 0
        self._quiet_until = 0.0

    def add(self, origin: str, reason: str) -> None:
        """A connection from ``origin`` was turned away for ``reason``."""
        self.count += 1
        self._untold += 1
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + _QUIET_SECONDS
        others = f" and {self._untold - 1} others" if self._untold > 1 else ""
        self._say(f"refused a connection from {origin}{others}: {reason}")
        self._untold = 0


class _GivenUpError(Exception):
    """The peer has asked on the right terms, and has not waited for an answer: this process was slow."""


class _Unproven(NamedTuple):
    acceptor: Acceptor
    since: float
    origin: str

    @property
    def seconds(self) -> float:
        """How long it is waited for."""
        return HANDSHAKE_SECONDS if self.acceptor.terms is None else PROOF_SECONDS

    @property
    def deadline(self) -> float:
        """When it is dropped."""
        return self.since + self.seconds


class Gatekeeper:
    """Listening sockets in a caller's selector, whose registered data are callables to be called when ready.

    ``admit`` receives each authenticated connection (non-blocking) and owns it. ``refusals`` counts those
    turned away, and tells ``say`` of them. The sockets of one owner are one crowd: who is displaced is the
    oldest at any of them, and what is told, at most every ten seconds, is of all.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        selector: selectors.BaseSelector,
        secret: bytes,
        policy: Policy,
        admit: Admit,
        say: Say,
    ) -> None:
        self.refusals = Refusals(say)
        self._listeners = listeners
        self._selector = selector
        self._secret = secret
        self._policy = policy
        self._admit = admit
        self._unproven: dict[socket.socket, _Unproven] = {}  # oldest first
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ, partial(self._on_connection, listener))

    def next_deadline(self) -> float:
        """When ``expire`` has something to do (monotonic seconds; infinity when nobody waits)."""
        return min((peer.deadline for peer in self._unproven.values()), default=float("inf"))

    def expire(self) -> None:
        """Drops those who did not prove themselves in time."""
        now = time.monotonic()
        for connection, peer in [(c, peer) for c, peer in self._unproven.items() if peer.deadline <= now]:
            self._drop(connection, f"it did not prove itself within {peer.seconds:g} s")

    def close(self) -> None:
        """Closes the listeners and everybody who is not admitted."""
        self.leave()
        for listener in self._listeners:
            listener.close()

    def leave(self) -> None:
        """Lets go of the listeners, and closes everybody who is not admitted."""
        for connection in list(self._unproven):
            self._release(connection)
        for listener in self._listeners:
            self._selector.unregister(listener)

    def _on_connection(self, listener: socket.socket) -> None:
        try:
            connection = endpoints.accept(listener)
        except PermissionError as error:
            self.refusals.add(str(error), "another user")
            return
        except OSError:
            self._make_room()
            return
        if connection is None:
            return
        if len(self._unproven) >= UNPROVEN_LIMIT * len(self._listeners):
            self._drop(next(iter(self._unproven)), "too many connections that do not prove themselves")
        acceptor = Acceptor(self._secret, self._policy)
        self._unproven[connection] = _Unproven(acceptor, time.monotonic(), endpoints.origin(connection))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._on_bytes(connection))

    def _make_room(self) -> None:
        """No descriptor is left: the oldest stranger gives its own up; without one, do not spin."""
        if self._unproven:
            self._drop(next(iter(self._unproven)), "no descriptor is left")
        else:
            time.sleep(_EXHAUSTED_SECONDS)

    def _on_bytes(self, connection: socket.socket) -> None:
        peer = self._unproven.get(connection)
        if peer is None:  # displaced earlier in the same round of events
            return
        try:
            finished = _advance(connection, peer.acceptor)
        except (TooEarlyError, _GivenUpError):  # it dials again
            self._release(connection)
            return
        except (AuthenticationError, OSError) as error:
            self._drop(connection, str(error))
            return
        if finished:
            self._forget(connection)
            assert peer.acceptor.terms is not None and peer.acceptor.keys is not None
            self._admit(connection, peer.acceptor.terms, peer.acceptor.keys)

    def _drop(self, connection: socket.socket, reason: str) -> None:
        origin = self._unproven[connection].origin
        self._release(connection)
        self.refusals.add(origin, reason)  # afterwards: to tell of it may take a descriptor

    def _release(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._unproven[connection]
        self._selector.unregister(connection)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the peer has closed it, with nothing left to read."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False


def _advance(connection: socket.socket, acceptor: Acceptor) -> bool:
    """Feeds what has arrived; True when the peer is proven. An answer always fits the empty buffer."""
    try:
        data = connection.recv(acceptor.wanted())
    except (BlockingIOError, InterruptedError):
        return False
    if not data:
        raise ConnectionResetError("closed during authentication")
    answer = acceptor.feed(data)
    if answer and acceptor.keys is None and _is_closed(connection):
        raise _GivenUpError
    if answer and connection.send(answer) != len(answer):
        raise ConnectionError("the peer does not take the answer")
    return acceptor.keys is not None
