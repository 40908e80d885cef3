"""Calls to other ranks, side by side, in the selector of somebody else's loop.

A rank that tells several addresses is dialled at one after the other: an address that does not answer is left
soon, and tried for longer in the next round. What has answered is tried first for every further link. A rank
with one address is not dialled again while the connection lasts: it may be slow, and will come to it.
"""

import collections
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from ..errors import AnotherUserError, AuthenticationError, BootstrapError
from ..network import endpoints
from ..network.auth import HANDSHAKE_SECONDS, Connector, Keys, Terms
from ..network.interfaces import INTERFACES_VARIABLE, PORTS_VARIABLE
from ..text import shown

_RETRY_SECONDS = 0.03
_CONNECT_SECONDS = 0.4  # for an address, where there are others, in the first round; then twice as long
_MOST_DIALS = 16  # of one rank at a time: many at once would displace each other at a busy acceptor

Reached = Callable[[socket.socket, Terms, Keys], None]
Failed = Callable[[Terms, BootstrapError], None]


class Dial:
    """One attempt after another to reach a rank."""

    def __init__(self, addresses: list[str], terms: Terms) -> None:
        self.addresses = addresses
        self.terms = terms
        self.retry_at = time.monotonic()
        self.untried: list[str] = []  # of this round, the next one last
        self.patience = _CONNECT_SECONDS / 2
        self.gives_up_at = float("inf")
        self.connection: socket.socket | None = None
        self.connector: Connector | None = None
        self.address = ""  # of the attempt
        self.is_last = False  # it is not repeated
        self.is_heard = False  # an attempt has reached the host, which has answered for the rank
        self.outcomes: dict[str, str] = {}  # by address

    def next_address(self, unanswered: set[str], answered: set[str]) -> str:
        """Those of hosts that have ``answered`` first, those ``unanswered`` last."""
        if not self.untried:
            self.patience = min(2 * self.patience, HANDSHAKE_SECONDS)
            ranked = sorted(
                self.addresses,
                key=lambda address: (_host(address) in unanswered) - (_host(address) in answered),
            )
            self.untried = ranked[::-1]
        return self.untried.pop()

    def seconds_to_connect(self) -> float:
        """Packets to an address that does not route may vanish, and then others are waiting."""
        return self.patience if len(self.addresses) > 1 else HANDSHAKE_SECONDS

    def seconds_to_answer(self) -> float:
        """Who listens at this address, of several, may be no rank of this job."""
        rounds = self.patience / _CONNECT_SECONDS
        return rounds * HANDSHAKE_SECONDS if len(self.addresses) > 1 else float("inf")


class Dialler:
    """``reached`` is given each proven connection (non-blocking), and owns it; ``failed`` hears of a call
    that is in vain however often it is repeated. ``names``: of every rank, for people.
    """

    def __init__(
        self,
        rank: int,
        secret: bytes,
        selector: selectors.BaseSelector,
        reached: Reached,
        names: Sequence[str],
        failed: Failed,
    ) -> None:
        self._rank = rank
        self._secret = secret
        self._selector = selector
        self._reached = reached
        self._names = names
        self._failed = failed
        self._queued: collections.deque[Dial] = collections.deque()
        self._dials: list[Dial] = []  # begun and not done
        self._answered: set[str] = set()  # hosts of addresses
        self._unanswered: set[str] = set()

    def dial(self, addresses: Sequence[str], terms: Terms) -> None:
        """Queues a call; ``advance`` begins it."""
        self._queued.append(Dial(list(addresses), terms))

    def advance(self) -> None:
        """What is due: a call that is queued, one that is repeated, one that got no answer."""
        while self._queued and len(self._dials) < _MOST_DIALS:
            self._dials.append(self._queued.popleft())
            self._start(self._dials[-1])
        now = time.monotonic()
        for dial in list(self._dials):
            if dial.connection is not None and dial.gives_up_at <= now:
                self._on_ready(dial)  # it may be this rank that was slow
            if dial.connection is not None and dial.gives_up_at <= now:
                self._try_again(dial, "no answer")
            if dial in self._dials and dial.connection is None and dial.retry_at <= now:
                self._start(dial)

    def due(self) -> Iterator[float]:
        """When ``advance`` has something to do."""
        return (dial.retry_at if dial.connection is None else dial.gives_up_at for dial in self._dials)

    def drop(self, terms: Terms) -> None:
        """Nobody needs this call any more. An attempt that is under way goes on: its acceptor would take the
        end of it for a stranger's.
        """
        self._queued = collections.deque(dial for dial in self._queued if dial.terms != terms)
        for dial in [dial for dial in self._dials if dial.terms == terms]:
            dial.is_last = True
            if dial.connection is None:
                self._dials.remove(dial)

    def is_heard(self, terms: Terms) -> bool:
        """Whether somebody listens where such a call goes, though it may not have been taken yet."""
        return any(dial.is_heard for dial in self._dials if dial.terms == terms)

    def close(self) -> None:
        """Ends all calls."""
        for dial in self._dials:
            self._hang_up(dial)
        self._dials.clear()
        self._queued.clear()

    def attempts(self, terms: Terms | None = None) -> str:
        """What the calls of these terms, or the first of all, have met."""
        dials = (dial for dial in self._dials if terms in (None, dial.terms))
        tried = next((dial for dial in dials if endpoints.split(dial.address)), None)
        if tried is None:
            return ". Look whether they are stopped or have failed"
        met = {tried.address: "no answer", **tried.outcomes}
        outcomes = ", ".join(f"{address.removeprefix('tcp:')} ({why})" for address, why in met.items())
        return (
            f". Calls to {self._callee(tried)}: {shown(outcomes)}. Look whether it is stopped, whether a "
            f"firewall is between the hosts ({PORTS_VARIABLE} keeps to some ports), and whether "
            f"{INTERFACES_VARIABLE} names the network between them"
        )

    def _start(self, dial: Dial) -> None:
        dial.address = dial.next_address(self._unanswered, self._answered)
        dial.connector = None
        try:
            dial.connection = endpoints.start_connect(dial.address)
        except OSError as error:
            self._try_again(dial, str(error.strerror))
            return
        dial.gives_up_at = time.monotonic() + dial.seconds_to_connect()
        self._selector.register(dial.connection, selectors.EVENT_WRITE, lambda: self._on_ready(dial))
        self._on_ready(dial)  # within a host the connection is there at once

    def _on_ready(self, dial: Dial) -> None:
        if dial.connection is None:
            return
        try:
            if dial.connector is None:
                self._greet(dial, dial.connection)
            else:
                self._listen(dial, dial.connection, dial.connector)
        except (BlockingIOError, InterruptedError):
            return
        except AnotherUserError as error:
            self._give_up(dial, BootstrapError(f"rank {self._rank}: {self._callee(dial)}: {error}"))
        except AuthenticationError as error:
            self._turn_from(dial, error)
        except OSError as error:
            self._try_again(dial, str(error.strerror or error))

    def _greet(self, dial: Dial, connection: socket.socket) -> None:
        endpoints.finish_connect(connection)
        connector = Connector(self._secret, dial.terms)
        _send_whole(connection, connector.greeting())
        dial.is_heard = True
        dial.connector = connector
        dial.gives_up_at = time.monotonic() + dial.seconds_to_answer()
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._on_ready(dial))

    def _listen(self, dial: Dial, connection: socket.socket, connector: Connector) -> None:
        data = connection.recv(connector.wanted())
        if not data:
            raise ConnectionResetError("closed during authentication")
        answer = connector.feed(data)
        if answer:
            _send_whole(connection, answer)
            # The acceptor may take the connection from now on: it says so, or ends it.
            dial.gives_up_at = float("inf")
        if connector.keys is not None:
            self._selector.unregister(connection)
            dial.connection = None
            self._dials.remove(dial)
            self._answered.add(_host(dial.address))
            self._unanswered.discard(_host(dial.address))
            self._reached(connection, dial.terms, connector.keys)

    def _turn_from(self, dial: Dial, error: AuthenticationError) -> None:
        """Who listens at this address is not of this job, as where two hosts have one address."""
        dial.addresses.remove(dial.address)
        if dial.addresses:
            self._try_again(dial, "no rank of this job listens there")
        else:
            self._give_up(dial, AuthenticationError(f"rank {self._rank}: {self._callee(dial)}: {error}"))

    def _give_up(self, dial: Dial, error: BootstrapError) -> None:
        self._hang_up(dial)
        self._dials.remove(dial)
        self._failed(dial.terms, error)

    def _try_again(self, dial: Dial, why: str) -> None:
        self._hang_up(dial)
        if dial.is_last:
            self._dials.remove(dial)
            return
        dial.outcomes[dial.address] = why
        self._unanswered.add(_host(dial.address))
        pause = 0.0 if dial.untried else endpoints.jittered(_RETRY_SECONDS)
        dial.retry_at = time.monotonic() + pause

    def _hang_up(self, dial: Dial) -> None:
        if dial.connection is not None:
            self._selector.unregister(dial.connection)
            dial.connection.close()
            dial.connection, dial.gives_up_at = None, float("inf")

    def _callee(self, dial: Dial) -> str:
        return self._names[dial.terms.acceptor]


def _host(address: str) -> str:
    found = endpoints.split(address)
    return found[0] if found else address


def _send_whole(connection: socket.socket, data: bytes) -> None:
    """A few dozen bytes into an empty buffer; a peer without room for them is dialled again."""
    if connection.send(data) != len(data):
        raise ConnectionError("short send")
