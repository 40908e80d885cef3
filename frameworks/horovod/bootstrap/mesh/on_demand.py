"""Links that are made after the start, when the core first wants them, or anew: that to the launcher, which a
network may break.

As at the start, the higher rank of a link dials and the lower one accepts. Where the lower one wants it, it
*knocks*: it dials the higher rank, proves itself, and hangs up; then the higher rank dials. So a link is made
in one way only, whoever wants it and also when both do, and neither waits for the other.
"""

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import BootstrapError
from ..network.auth import LAUNCHER_RANK, Keys, Role, Terms
from ..network.gatekeeper import Gatekeeper
from ..store.client import StoreClient
from ..text import warn
from .dialler import Dialler
from .linker import ON_DEMAND, Link, link_of

_THREAD = "hvd-links"
_FOREVER = float(
    "inf"
)  # the core tells people of it, and who dies meanwhile is missed by those that watch it


class Core(Protocol):
    """What this asks of the module ``_core``."""

    def link_requests_descriptor(self) -> int:
        """Readable when there is something to take; the caller's."""

    def take_link_requests(self) -> list[tuple[int, int]] | None:
        """(peer, role) of links that are wanted; None: there will be no more."""

    def add_link(self, link: Link) -> None:
        """Takes a link."""

    def add_launcher(self, fd: int, key: bytes, frames: int) -> None:
        """Takes one to the launcher."""

    def give_up_link(self, peer: int, reason: str) -> None:
        """Ends the job, unless the peer has left; for the launcher, this rank."""


class OnDemand:
    """Owns the listeners of a rank. ``start`` begins a thread, which ends by itself when the core has stopped
    or has failed; then nothing stays open.
    """

    def __init__(
        self,
        rank: int,
        generation: int,
        secret: bytes,
        listeners: Sequence[socket.socket],
        names: Sequence[str],
        made: set[tuple[int, Role]],
        addresses_of: Callable[[int], list[str]],
        timeout: float,
        reach_launcher: Callable[[], StoreClient],
    ) -> None:
        """``made``: the links that there are. ``names``: of every rank, for people. ``timeout``: seconds, for
        one link. ``reach_launcher`` may wait, and raises BootstrapError when there is none.
        """
        self._rank = rank
        self._generation = generation
        self._secret = secret
        self._listeners = listeners
        self._names = names
        self._made = made
        self._addresses_of = addresses_of
        self._timeout = timeout
        self._reach_launcher = reach_launcher
        self._is_closed = False
        self._awaited: dict[tuple[int, Role], float] = {}  # until when
        self._closing = contextlib.ExitStack()  # what is open, once it runs
        self._selector: selectors.BaseSelector | None = None
        self._thread: threading.Thread | None = None

    def start(self, core: Core) -> None:
        """Once the core runs. Nothing stays open when it fails."""
        self._core = core
        for listener in self._listeners:
            self._closing.callback(listener.close)
        try:
            wanted = core.link_requests_descriptor()
            self._closing.callback(os.close, wanted)
            selector = self._selector = self._closing.enter_context(selectors.DefaultSelector())
            self._dialler = Dialler(
                self._rank, self._secret, selector, self._reach, self._names, self._give_up
            )
            self._closing.callback(self._dialler.close)
            selector.register(wanted, selectors.EVENT_READ, self._on_wanted)
            self._gate = Gatekeeper(
                self._listeners, selector, self._secret, self._expects, self._admit, self._say
            )
            self._closing.callback(self._gate.leave)
            thread = threading.Thread(target=self._serve, args=(selector,), name=_THREAD, daemon=True)
            thread.start()
            self._thread = thread
        except BaseException:
            self._closing.close()
            raise

    def close(self) -> None:
        """After the core has stopped, or where it has not started."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        elif self._selector is None:
            for listener in self._listeners:
                listener.close()

    def close_in_child(self) -> None:
        """In a process that was forked from the rank: its copies of the descriptors. Nothing is taken out of
        the selector, which the kernel has once for both.
        """
        if self._thread is None or self._selector is None:
            return self.close()
        # None: the core has ended before, and so has the thread.
        for key in list((self._selector.get_map() or {}).values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()  # type: ignore[attr-defined]
        self._selector.close()
        self._thread = None

    def _serve(self, selector: selectors.BaseSelector) -> None:
        self._over = False
        try:
            while not self._over:
                self._step(selector)
        except Exception as error:  # nobody else would tell, and whoever waits for a link would go on waiting
            self._core.give_up_link(self._rank, f"rank {self._rank} can make no more links: {error!r}")
        finally:
            self._closing.close()

    def _step(self, selector: selectors.BaseSelector) -> None:
        self._dialler.advance()
        until = min([self._gate.next_deadline(), *self._awaited.values(), *self._dialler.due()])
        left = None if until == _FOREVER else max(0.0, until - time.monotonic())
        for key, _ in selector.select(left):
            key.data()
        self._gate.expire()
        now = time.monotonic()
        for peer, role in [awaited for awaited, end in self._awaited.items() if end <= now]:
            self._miss(peer, role)

    def _on_wanted(self) -> None:
        wanted = self._core.take_link_requests()
        self._over = wanted is None
        for peer, role in wanted or ():
            if role == Role.LAUNCHER:
                threading.Thread(target=self._renew_launcher, name="hvd-launcher", daemon=True).start()
            else:
                self._want(peer, Role(role))

    def _renew_launcher(self) -> None:
        """On a thread of its own, which may outlive this one: the core wants it also once it has failed."""
        try:
            store = self._reach_launcher()
        except BootstrapError as error:
            return None if self._is_closed else self._core.give_up_link(LAUNCHER_RANK, str(error))
        if self._is_closed:
            return store.close()
        self._core.add_launcher(*store.detach())

    def _want(self, peer: int, role: Role) -> None:
        if (peer, role) in self._made or (peer, role) in self._awaited:
            return
        self._awaited[peer, role] = time.monotonic() + self._timeout
        terms = self._terms(peer, role)
        try:
            self._dialler.dial(self._addresses_of(peer), terms)
        except BootstrapError as error:
            self._give_up(terms, error)

    def _terms(self, peer: int, role: Role) -> Terms:
        """Of a call: a link with a lower rank, a knock at a higher one."""
        return Terms(role, self._rank, peer, self._generation)

    def _reach(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        peer, role = terms.acceptor, terms.role
        if peer < self._rank:
            return self._keep(connection, peer, role, keys)
        connection.close()
        if (peer, role) in self._awaited:  # now the peer calls, and tells if that is in vain
            self._awaited[peer, role] = _FOREVER

    def _expects(self, terms: Terms) -> bool:
        is_here = terms.generation == self._generation and terms.acceptor == self._rank
        exists = 0 <= terms.connector < len(self._names) and terms.connector != self._rank
        return is_here and exists and terms.role in ON_DEMAND

    def _admit(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        peer, role = terms.connector, terms.role
        if peer > self._rank and (peer, role) not in self._made:
            return self._keep(connection, peer, role, keys)
        connection.close()
        if peer < self._rank:
            self._want(peer, role)

    def _keep(self, connection: socket.socket, peer: int, role: Role, keys: Keys) -> None:
        self._made.add((peer, role))
        self._awaited.pop((peer, role), None)
        self._dialler.drop(self._terms(peer, role))  # a knock may still be under way
        self._core.add_link(link_of(connection, peer, role, keys))

    def _miss(self, peer: int, role: Role) -> None:
        terms = self._terms(peer, role)
        if self._dialler.is_heard(terms):  # it may compute without letting other threads run
            self._awaited[peer, role] = _FOREVER
            return
        self._awaited.pop((peer, role))
        missing = f"no {role.name.lower()} link to {self._names[peer]} within {self._timeout:g} s"
        self._core.give_up_link(peer, f"rank {self._rank}: {missing}{self._dialler.attempts(terms)}")
        self._dialler.drop(terms)

    def _give_up(self, terms: Terms, error: BootstrapError) -> None:
        self._awaited.pop((terms.acceptor, terms.role), None)
        self._core.give_up_link(terms.acceptor, str(error))

    def _say(self, text: str) -> None:
        warn(self._rank, text)
