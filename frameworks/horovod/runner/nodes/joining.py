"""Where agents dial in that nobody has started for the launcher: it listens, and each says who it is.

After both ends have proved the secret, the agent's first message is an Application and the launcher's an
answer to it; all others are those of a ``session``, in which the two go on also over another connection.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.network.auth import LAUNCHER_RANK, Keys, Role, Terms
from horovod.bootstrap.network.frames import Opener, Sealer
from horovod.bootstrap.network.gatekeeper import Gatekeeper
from horovod.bootstrap.rendezvous.rendezvous import derive
from horovod.version import __version__

from .channel import PROTOCOL, Tag
from .joined import Joined
from .loop import Loop
from .sealed import SealedConnection
from .session import SessionError
from .way import PING_SECONDS

TERMS = Terms(Role.AGENT, LAUNCHER_RANK, LAUNCHER_RANK, 0)
WELCOME, REFUSAL = b"w", b"r"
NEVER, LATER, ANEW = "never", "later", "anew"  # when a host that was refused may apply again
_APPLICATION_SECONDS = 10.0
_MOST_NUMBER = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_]([\w.-]{0,251}\w)?", re.ASCII)
_NEVER = float("inf")


@dataclass(frozen=True)
class Application:
    """What an agent says of itself: ``session`` is what it draws for itself, ``slots`` and ``place`` are how
    many ranks its host may run and where among the hosts it stands, where somebody has said so. It has got
    ``received`` bytes of the session.
    """

    session: str
    host: str
    slots: int | None
    place: int | None
    received: int
    protocol: int = PROTOCOL
    version: str = __version__

    def encode(self) -> bytes:
        """As a message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, message: bytes) -> "Application":
        """Raises ValueError for what is none."""
        try:
            said = cls(**json.loads(message))
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        numbers = [
            each for each in (said.slots, said.place, said.received, said.protocol) if each is not None
        ]
        if not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError("a number is none")
        if max(said.slots or 0, said.place or 0) > _MOST_NUMBER:
            raise ValueError("a number is too large")
        if not all(isinstance(each, str) for each in (said.session, said.host, said.version)):
            raise ValueError("a text is none")
        if not _NAME.fullmatch(said.host):
            raise ValueError("this is not the name of a host")
        return said


def key(secret: bytes) -> bytes:
    """What agents prove, from the secret that the user gives."""
    return derive(secret, b"agents")


class Joining:
    """Listens at a port of this host.

    Args:
        loop: which waits for the connections; it has to call ``tend``.
        secret: what the user gives to all hosts.
        hosts: the addresses of this host at which to listen.
        port: the one at all of them.
        patience: seconds for which a host may be silent until it counts as lost.
        salt: makes the secret of the job from that of the hosts.
        say: told of those who prove nothing.

    Raises OSError where nobody can listen there.
    """

    def __init__(
        self,
        loop: Loop,
        secret: bytes,
        hosts: Sequence[str],
        port: int,
        patience: float,
        salt: str,
        say: Callable[[str], None],
    ) -> None:
        self.refuses = ""  # why nobody can join any more
        self._loop = loop
        self._patience = patience
        self._salt = salt
        self._ways: dict[str, Joined] = {}  # by session, in the order of their coming
        self._shows_life_at = 0.0
        self._strangers: dict[SealedConnection, float] = {}  # until when each has to apply
        listeners = endpoints.listen_at(hosts, range(port, port + 1))
        self.address = ",".join(address for _, address in listeners)
        sockets = [listener for listener, _ in listeners]
        self._gate = Gatekeeper(sockets, loop.selector, key(secret), _is_agent, self._admit, say)
        loop.attendants.append(self)

    @property
    def here(self) -> list[Joined]:
        """The ways to the agents that have come and have not left, with what each says of its host in
        ``application``.
        """
        return [way for way in self._ways.values() if way.is_here]

    def way(self, host: str) -> Joined | None:
        """To the agent on a host; None: none has dialled from there, or it is lost."""
        return next((way for way in reversed(self.here) if way.host == host), None)

    def tend(self, now: float) -> float:
        """Drops those who do not say who they are, and lets the others know that somebody is here."""
        self._gate.expire()
        for connection in [each for each, deadline in self._strangers.items() if now >= deadline]:
            self._drop(connection)
        if now >= self._shows_life_at:
            self._shows_life_at = now + PING_SECONDS
            for way in self._ways.values():
                way.show_life(now)
        return min(
            self._shows_life_at if self._ways else _NEVER,
            *self._strangers.values(),
            self._gate.next_deadline(),
        )

    def part(self, status: int, seconds: float) -> None:
        """Lets all agents go, with the status of the job, and waits for them so long at most."""
        here = [way for way in self._ways.values() if not way.is_gone]
        for way in here:
            way.send(Tag.DONE, status)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all(way.is_gone for way in here):
            self._loop.step(end, [])
        for way in here:
            way.close()

    def close(self) -> None:
        """Listens no more."""
        if self in self._loop.attendants:
            self._loop.attendants.remove(self)
            self._gate.close()
            for connection in list(self._strangers):
                self._drop(connection)

    def _admit(self, connection: socket.socket, terms: Terms, keys: Keys) -> None:
        try:
            addresses = endpoints.own_host(connection), str(connection.getpeername()[0])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            ends = connection, Sealer(keys.send), Opener(keys.receive)
            sealed = SealedConnection(self._loop.selector, *ends, _ignore, _ignore)
        except OSError:  # it has ended meanwhile, or no descriptor is left: the agent dials again
            connection.close()
            return
        sealed.on_message = lambda message: self._take(sealed, addresses, message)
        sealed.on_end = lambda reason: self._drop(sealed)
        self._strangers[sealed] = time.monotonic() + _APPLICATION_SECONDS

    def _drop(self, connection: SealedConnection) -> None:
        del self._strangers[connection]
        connection.close()

    def _take(self, connection: SealedConnection, addresses: tuple[str, str], message: bytes) -> None:
        del self._strangers[connection]
        try:
            application = Application.decode(message)
            if refusal := self._refusal(application):
                _refuse(connection, *refusal)
                return
            way = self._ways.get(application.session)
            if way is None:
                way = self._ways[application.session] = self._new_way(application, addresses)
            connection.send(WELCOME + json.dumps(way.stream.received).encode())
            way.resume(connection, application.received)
        except (ValueError, SessionError) as error:
            _refuse(connection, f"what it says makes no sense: {error}", NEVER)

    def _new_way(self, application: Application, addresses: tuple[str, str]) -> Joined:
        return Joined(application, addresses, self._patience, self._salt)

    def _refusal(self, application: Application) -> tuple[str, str] | None:
        """Why an agent cannot join, and when it may apply again; None: it can."""
        if (application.protocol, application.version) != (PROTOCOL, __version__):
            theirs = f"{application.version} (protocol {application.protocol})"
            return f"it has horovod {theirs}, and the launcher {__version__} (protocol {PROTOCOL})", NEVER
        if way := self._ways.get(application.session):
            return ("the launcher has given the host up", NEVER) if way.is_gone else None
        if application.received:
            return "the launcher that it served is gone, and this one knows nothing of its ranks", ANEW
        namesakes = [way for way in self._ways.values() if way.host == application.host and not way.is_gone]
        for way in [each for each in namesakes if not each.stream.is_connected and not each.has_work]:
            del self._ways[way.application.session]  # its agent has been started anew
            way.close()
            namesakes.remove(way)
        if namesakes:
            return _taken(application.host), LATER
        return (self.refuses, NEVER) if self.refuses else None


def _taken(name: str) -> str:
    return f"a host of the name {name} has joined already: give this one another, as --name {name}-2"


def _refuse(connection: SealedConnection, reason: str, when: str) -> None:
    connection.send(REFUSAL + json.dumps([reason, when]).encode())
    connection.close()


def _is_agent(terms: Terms) -> bool:
    return terms == TERMS


def _ignore(_: object) -> None:
    """Nobody listens yet."""
