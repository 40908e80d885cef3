"""The loop that makes a rank's links at the start: it dials the lower ranks and accepts the higher ones, all
side by side, and only waits for events.
"""

import selectors
import socket
import time
from collections.abc import Sequence

from ..errors import AbandonedError, BootstrapError, StartTimeoutError, TooEarlyError
from ..network.auth import Keys, Role, Terms
from ..network.gatekeeper import Gatekeeper
from ..text import warn
from .dialler import Dialler

Link = tuple[int, int, int, bytes, bytes]

# What may also be made later.
ON_DEMAND = (Role.CONTROL, Role.DATA, Role.DATA_2, Role.DATA_3, Role.DATA_4)


class Linker:
    """Sockets belong to it until ``take_links``; leaving the context closes whatever is left. Its listeners
    stay the caller's.
    """

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
        self._wanted = wanted
        self._names = names
        self._links: dict[tuple[int, Role], tuple[socket.socket, Keys]] = {}
        self._selector = selectors.DefaultSelector()
        self._dialler = Dialler(rank, secret, self._selector, self._reach, names, self._fail)
        self._gate = Gatekeeper(listeners, self._selector, secret, self._expects, self._admit, self._say)
        if launcher is not None:
            self._selector.register(launcher, selectors.EVENT_READ, self._on_launcher)

    def __enter__(self) -> "Linker":
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.leave()
        self._dialler.close()
        for connection, _keys in self._links.values():
            connection.close()
        self._selector.close()

    def dial(self, addresses: Sequence[str], rank: int, role: Role) -> None:
        """Queues a call to ``rank``; ``run`` carries it out."""
        self._dialler.dial(addresses, Terms(role, self._rank, rank, self._generation))

    def run(self, begin: float, timeout: float) -> None:
        """Until every link is there, at most ``timeout`` seconds from ``begin``."""
        deadline = begin + timeout
        while len(self._links) < len(self._wanted):
            self._dialler.advance()
            now = time.monotonic()
            if now >= deadline:
                raise self._missing(timeout)
            until = min([deadline, self._gate.next_deadline(), *self._dialler.due()])
            for key, _ in self._selector.select(max(0.0, until - now)):
                key.data()
            self._gate.expire()

    def take_links(self) -> list[Link]:
        """Hands the sockets over, in the order of peer and role."""
        ordered = sorted(self._links.items())
        self._links.clear()
        return [link_of(connection, peer, role, keys) for (peer, role), (connection, keys) in ordered]

    def _on_launcher(self) -> None:
        raise AbandonedError(f"rank {self._rank}: the launcher has given this start up, or has ended")

    def _say(self, text: str) -> None:
        warn(self._rank, text)

    def _expects(self, terms: Terms) -> bool:
        if terms.generation != self._generation or terms.acceptor != self._rank:
            return False
        if terms.connector > self._rank and (terms.connector, terms.role) in self._wanted:
            return True
        if terms.role in ON_DEMAND:
            raise TooEarlyError("a link that is made on demand, before the start is over")
        return False

    def _admit(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        self._keep(terms.connector, terms.role, connection, keys)

    def _reach(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        self._keep(terms.acceptor, terms.role, connection, keys)

    def _fail(self, _terms: Terms, error: BootstrapError) -> None:
        raise error

    def _keep(self, peer: int, role: Role, connection: socket.socket, keys: Keys) -> None:
        older = self._links.pop((peer, role), None)
        if older is not None:  # the peer gave up on it and dialled again
            older[0].close()
        self._links[peer, role] = connection, keys

    def _missing(self, timeout: float) -> StartTimeoutError:
        ranks = sorted({rank for rank, role in self._wanted - self._links.keys()})
        names = ", ".join(self._names[rank] for rank in ranks[:16]) + (", ..." if len(ranks) > 16 else "")
        return StartTimeoutError(
            f"rank {self._rank}: no link to {names} within {timeout:g} s although "
            f"{'they have' if len(ranks) > 1 else 'it has'} arrived{self._dialler.attempts()}",
            ranks,
        )


def link_of(connection: socket.socket, peer: int, role: Role, keys: Keys) -> Link:
    """As the core takes it, with the descriptor of a proven connection."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(True)
    return connection.detach(), peer, int(role), keys.send, keys.receive
