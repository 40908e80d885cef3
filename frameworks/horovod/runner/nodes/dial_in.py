"""How an agent that nobody has started for the launcher reaches it: it dials, again and again where a
connection breaks, and goes on where it was.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from horovod.bootstrap.errors import AuthenticationError, BootstrapError, StrangerError
from horovod.bootstrap.network import endpoints
from horovod.bootstrap.network.auth import HANDSHAKE_SECONDS, Keys, authenticate
from horovod.bootstrap.network.frames import Opener, Sealer
from horovod.bootstrap.rendezvous.rendezvous import derive
from horovod.bootstrap.secret import FILE_VARIABLE

from .. import timeouts
from .joining import ANEW, LATER, TERMS, WELCOME, Application, key
from .loop import Loop
from .sealed import LastingStream, SealedConnection
from .session import SessionError

_CONNECT_SECONDS = 4.0
_FIRST_TELL_SECONDS, _TELL_SECONDS = 5.0, 30.0
_ANSWER_SECONDS = 10.0
_FIRST_PAUSE, _MOST_PAUSE = 0.1, 2.0


class RefusedError(Exception):
    """The launcher does not want this host; the text says why. ``is_forgotten``: it does not know it."""

    def __init__(self, text: str, is_forgotten: bool = False) -> None:
        super().__init__(text)
        self.is_forgotten = is_forgotten


class _NotYetError(ConnectionRefusedError):
    """The launcher may want this host later; the text says why."""


@dataclass
class _Link:
    """A connection on which the launcher has welcomed this host, ``arrived`` bytes of which it has."""

    connection: socket.socket
    sealer: Sealer
    opener: Opener
    arrived: int
    messages: list[bytes]  # that have come by now


class DialIn:
    """Carries the bytes of an agent; see ``carrier.Carrier``."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        secret: bytes,
        name: str,
        slots: int | None,
        place: int | None,
        start_seconds: float,
        patience: float,
        say: Callable[[str], None],
    ) -> None:
        """``start_seconds`` is how long it may take until the launcher is there, ``patience`` how long a
        connection may be away if the launcher does not say it; ``say`` gets lines for people.
        """
        self.on_bytes: Callable[[bytes], object] = lambda data: None
        self.reason = ""
        self.is_forgotten = False  # by a launcher that has been started anew
        self.patience = float("inf")  # this class knows itself when to give up
        self.is_paused = False
        self._limit = start_seconds
        self._loop = loop
        self._address = address
        self._secret = secret
        self._own = Application(secrets.token_hex(16), name, slots, place, 0)
        self._later_limit = patience
        self._say = say
        self._stream = LastingStream(self._take, self._on_break, self._end)
        self._since = time.monotonic()  # without a connection since then
        self._problem = "nobody has answered"
        self._tell_at = self._since + _FIRST_TELL_SECONDS
        self._dialled: list[_Link | RefusedError] = []  # by the thread
        self._is_closed = False
        self._dial()

    @property
    def unsent(self) -> int:
        """How many bytes the launcher may not have."""
        return self._stream.unsent

    def write(self, data: bytes) -> None:
        """For the launcher, now or when there is a connection."""
        self._stream.write(data)

    def job_secret(self, said: dict[str, Any]) -> bytes:
        """That of the job, from what the work says of it. From now on there is something to lose, and the
        launcher says after how long that is.
        """
        self._limit = timeouts.lost_seconds(said["environment"], self._later_limit)
        return derive(self._secret, b"job", str(said["salt"]).encode())

    def tend(self, now: float) -> float:
        """Goes on with a connection that is there, looks for another one, or gives up."""
        while self._dialled:
            self._take_link(self._dialled.pop(0))
        self._stream.tend(now)
        is_away = not self._stream.is_connected
        if is_away and now >= self._tell_at:
            self._say(f"no connection to {self._where} so far: {self._problem}")
            self._tell_at = now + _TELL_SECONDS
        if is_away and now >= self._since + self._limit and not self.is_paused:
            self._end(f"no connection to {self._where} for {self._limit:g} s: {self._problem}")
        return now + 1.0

    def close(self) -> None:
        """The launcher need not wait for another connection. Idempotent."""
        self._is_closed = True
        self._stream.leave()

    @property
    def _where(self) -> str:
        host, port = self._address
        return f"{host}:{port}"

    def _dial(self, delay: float = 0.0) -> None:
        threading.Thread(target=self._dial_on_thread, args=(delay,), name="horovod-dial", daemon=True).start()

    def _dial_on_thread(self, delay: float) -> None:
        time.sleep(delay)
        pause = _FIRST_PAUSE
        while not self._is_closed:
            try:
                self._dialled.append(_reach(self._address, self._secret, self._own, self._stream.received))
                break
            except RefusedError as error:
                self._dialled.append(error)
                break
            except _NotYetError as error:
                self._tell(str(error))
            except (OSError, BootstrapError, ValueError) as error:
                self._problem = str(error)
            time.sleep(endpoints.jittered(pause))
            pause = min(2 * pause, _MOST_PAUSE)
        self._loop.wake()

    def _tell(self, refusal: str) -> None:
        """A person is told at once of each, by the loop: most can only be ended by doing something else."""
        if refusal != self._problem:
            self._problem, self._tell_at = refusal, 0.0
            self._loop.wake()

    def _take_link(self, link: "_Link | RefusedError") -> None:
        if isinstance(link, RefusedError):
            self.is_forgotten = link.is_forgotten
            self._end(str(link))
            return
        is_new = not self._stream.received
        ends = link.connection, link.sealer, link.opener
        try:
            connection = SealedConnection(self._loop.selector, *ends, self._stream.take, self._stream.drop)
        except OSError as error:  # no descriptor is left just now
            link.connection.close()
            self._on_break(str(error), _FIRST_PAUSE)
            return
        try:
            self._stream.resume(connection, link.arrived)
        except SessionError as error:
            connection.close()
            self._end(str(error))
            return
        if is_new:
            self._say(f"has joined {self._where} as {self._own.host}")
        for message in link.messages:
            self._stream.take(message)

    def _take(self, data: bytes) -> None:
        self.on_bytes(data)

    def _on_break(self, reason: str, delay: float = 0.0) -> None:
        self._since, self._problem = time.monotonic(), reason
        self._tell_at = self._since + _FIRST_TELL_SECONDS
        if not self._is_closed:
            self._dial(delay)

    def _end(self, reason: str) -> None:
        if not self._is_closed:
            self.reason = reason
            self.close()
            self.on_bytes(b"")


def _reach(address: tuple[str, int], secret: bytes, own: Application, received: int) -> _Link:
    """A connection on which the launcher has said welcome. Raises RefusedError, or what the network did."""
    connection = socket.create_connection(address, _CONNECT_SECONDS)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        keys = _prove(connection, address, secret)
        sealer, opener = Sealer(keys.send), Opener(keys.receive)
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(sealer.seal(replace(own, received=received).encode()))
        answer, *more = _messages(connection, opener)
        if answer[:1] == WELCOME:
            os.set_inheritable(connection.fileno(), False)
            return _Link(connection, sealer, opener, int(json.loads(answer[1:])), more)
        reason, when = json.loads(answer[1:])
        raise _NotYetError(reason) if when == LATER else RefusedError(reason, when == ANEW)
    except BaseException:
        connection.close()
        raise


def _prove(connection: socket.socket, address: tuple[str, int], secret: bytes) -> Keys:
    """Of a launcher that has the secret. One that has not may refuse this host for good; what speaks another
    protocol, as a proxy whose launcher is not up yet, may not.
    """
    where = f"{address[0]}:{address[1]}"
    try:
        return authenticate(connection, key(secret), TERMS, HANDSHAKE_SECONDS)
    except StrangerError:
        raise _NotYetError(f"who answers at {where} is no horovodrun: is it a proxy?") from None
    except AuthenticationError:
        raise RefusedError(
            f"who listens at {where} does not hold this host's secret: {FILE_VARIABLE} must be the same on "
            "all hosts"
        ) from None


def _messages(connection: socket.socket, opener: Opener) -> list[bytes]:
    """The first message, and those that have come with it."""
    while True:
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the launcher has closed the connection")
        if messages := opener.feed(data):
            return messages
