"""The loop that makes a rank's links: it dials the lower ranks and accepts the higher ones, all side by side,
and only waits for events.

A rank that tells several addresses is dialled at one after the other: an address that does not answer is left
soon, and tried for longer in the next round. What has answered is tried first for every further link.
"""

import collections
import logging
import random
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import AbandonedError, AnotherUserError, AuthenticationError, BootstrapError, StartTimeoutError
from ..network import endpoints
from ..network.auth import HANDSHAKE_SECONDS, Connector, Keys, Role, Terms
from ..network.gatekeeper import Gatekeeper
from ..network.interfaces import INTERFACES_VARIABLE, PORTS_VARIABLE
from ..text import shown

_log = logging.getLogger("horovod")

Link = tuple[int, int, int, bytes, bytes]

_RETRY_SECONDS = 0.02
_CONNECT_SECONDS = 0.4  # for an address, where there are others, in the first round; then twice as long
_MOST_DIALS = 16  # of one rank at a time: many at once would displace each other at a busy acceptor


@dataclass
class _Dial:
    """One attempt after another to reach a lower rank."""

    addresses: list[str]
    terms: Terms
    retry_at: float
    untried: list[str] = field(default_factory=list)  # of this round, the next one last
    patience: float = _CONNECT_SECONDS / 2
    gives_up_at: float = float("inf")
    connection: socket.socket | None = None
    connector: Connector | None = None
    address: str = ""  # of the attempt
    outcomes: dict[str, str] = field(default_factory=dict)  # by address

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


class Linker:
    """Sockets belong to it until ``take_links``; leaving the context closes whatever is left."""

    def __init__(
        self,
        rank: int,
        generation: int,
        secret: bytes,
        wanted: set[tuple[int, Role]],
        listeners: Sequence[socket.socket],
        names: Sequence[str],
        launcher: socket.socket | None = None,
    ) -> None:
        """``names``: of every rank, for people. ``launcher``: the connection to it, whose end ends this."""
        self._rank = rank
        self._generation = generation
        self._secret = secret
        self._wanted = wanted
        self._names = names
        self._queued: collections.deque[_Dial] = collections.deque()
        self._dials: list[_Dial] = []  # begun and not done
        self._answered: set[str] = set()  # hosts of addresses
        self._unanswered: set[str] = set()
        self._links: dict[tuple[int, Role], tuple[socket.socket, Keys]] = {}
        self._selector = selectors.DefaultSelector()
        self._gates = [
            Gatekeeper(listener, self._selector, secret, self._expects, self._admit, self._say)
            for listener in listeners
        ]
        if launcher is not None:
            self._selector.register(launcher, selectors.EVENT_READ, self._on_launcher)

    def __enter__(self) -> "Linker":
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._gates:
            gate.close()
        for dial in self._dials:
            self._hang_up(dial)
        for connection, _keys in self._links.values():
            connection.close()
        self._selector.close()

    def dial(self, addresses: Sequence[str], rank: int, role: Role) -> None:
        """Queues a call to ``rank``; ``run`` carries it out."""
        terms = Terms(role, self._rank, rank, self._generation)
        self._queued.append(_Dial(list(addresses), terms, time.monotonic()))

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

    def _on_launcher(self) -> None:
        raise AbandonedError(f"rank {self._rank}: the launcher has given this start up, or has ended")

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
        dial.address = dial.next_address(self._unanswered, self._answered)
        dial.connector = None
        try:
            dial.connection = endpoints.start_connect(dial.address)
        except OSError as error:
            self._try_again(dial, str(error.strerror))
            return
        dial.gives_up_at = time.monotonic() + dial.seconds_to_connect()
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
        except AnotherUserError as error:
            raise BootstrapError(f"rank {self._rank}: {self._callee(dial)}: {error}") from None
        except AuthenticationError as error:
            self._turn_from(dial, error)
        except OSError as error:
            self._try_again(dial, str(error.strerror or error))

    def _greet(self, dial: _Dial, connection: socket.socket) -> None:
        endpoints.finish_connect(connection)
        connector = Connector(self._secret, dial.terms)
        _send_whole(connection, connector.greeting())
        dial.connector = connector
        dial.gives_up_at = time.monotonic() + HANDSHAKE_SECONDS
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._on_ready(dial))

    def _listen(self, dial: _Dial, connection: socket.socket, connector: Connector) -> None:
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
            self._keep(dial.terms.acceptor, dial.terms.role, connection, connector.keys)

    def _turn_from(self, dial: _Dial, error: AuthenticationError) -> None:
        """Who listens at this address is not of this job, as where two hosts have one address."""
        dial.addresses.remove(dial.address)
        if not dial.addresses:
            raise AuthenticationError(f"rank {self._rank}: {self._callee(dial)}: {error}") from None
        self._try_again(dial, "no rank of this job listens there")

    def _try_again(self, dial: _Dial, why: str) -> None:
        self._hang_up(dial)
        dial.outcomes[dial.address] = why
        self._unanswered.add(_host(dial.address))
        pause = 0.0 if dial.untried else _RETRY_SECONDS * random.uniform(0.5, 1.5)
        dial.retry_at = time.monotonic() + pause

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
                self._try_again(dial, "no answer")
            if dial.connection is None and dial.retry_at <= now:
                self._start(dial)

    def _callee(self, dial: _Dial) -> str:
        return self._names[dial.terms.acceptor]

    def _missing(self, timeout: float) -> StartTimeoutError:
        ranks = sorted({rank for rank, role in self._wanted - self._links.keys()})
        names = ", ".join(self._names[rank] for rank in ranks[:16]) + (", ..." if len(ranks) > 16 else "")
        return StartTimeoutError(
            f"rank {self._rank}: no link to {names} within {timeout:g} s although "
            f"{'they have' if len(ranks) > 1 else 'it has'} arrived{self._attempts()}",
            ranks,
        )

    def _attempts(self) -> str:
        """What the calls to the first of them have met."""
        tried = next((dial for dial in self._dials if endpoints.split(dial.address)), None)
        if tried is None:
            return ". Look whether they are stopped or have failed"
        met = {tried.address: "no answer", **tried.outcomes}
        outcomes = ", ".join(f"{address.removeprefix('tcp:')} ({why})" for address, why in met.items())
        return (
            f". Calls to {self._callee(tried)}: {shown(outcomes)}. Look whether it is stopped, whether a "
            f"firewall is between the hosts ({PORTS_VARIABLE} keeps to some ports), and whether "
            f"{INTERFACES_VARIABLE} names the network between them"
        )


def _host(address: str) -> str:
    found = endpoints.split(address)
    return found[0] if found else address


def _send_whole(connection: socket.socket, data: bytes) -> None:
    """A few dozen bytes into an empty buffer; a peer without room for them is dialled again."""
    if connection.send(data) != len(data):
        raise ConnectionError("short send")
