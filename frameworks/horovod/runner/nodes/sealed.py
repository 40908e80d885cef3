"""A connection whose ends have proved the job's secret to each other, in a loop: sealed messages come and go;
and a stream that goes on over one such connection after another.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable

from horovod.bootstrap.errors import AuthenticationError
from horovod.bootstrap.network.frames import Opener, Sealer

from .pipes import ReadPipe, WritePipe
from .session import FAREWELL, Session, SessionError

_SILENCE_SECONDS = 8.0  # each side says something every other second: then another connection is tried


class SealedConnection:
    """``on_message`` gets each message. ``on_end`` is called once, with the reason, when the connection has
    ended or carries what the other side has not sealed; it is not after ``close``.

    Raises OSError where no descriptor is left; then the connection stays the caller's.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        connection: socket.socket,
        sealer: Sealer,
        opener: Opener,
        on_message: Callable[[bytes], object],
        on_end: Callable[[str], object],
    ) -> None:
        self.on_message = on_message
        self.on_end = on_end
        self._sealer = sealer
        self._opener = opener
        self._is_open = True
        self._out = WritePipe(selector, os.dup(connection.fileno()))
        self._in = ReadPipe(selector, connection.detach(), self._feed)

    def send(self, message: bytes) -> None:
        """Queues a message; without effect after the end."""
        if self._is_open:
            self._out.write(self._sealer.seal(message))

    def close(self) -> None:
        """Idempotent; what is unsent is lost."""
        self._is_open = False
        self._in.close()
        self._out.close()

    def _feed(self, data: bytes) -> None:
        try:
            if not data:
                raise ConnectionResetError("the connection has ended")
            for message in self._opener.feed(data):
                if self._is_open:
                    self.on_message(message)
        except (AuthenticationError, ConnectionResetError) as error:
            if self._is_open:
                self.close()
                self.on_end(str(error))


class LastingStream:
    """One side of a ``session``, over whichever connection there is. ``heard`` is when something came last.

    ``on_bytes`` gets what the other side writes, ``on_break`` why the connection has ended, where another one
    may come, and ``on_end`` why none may.
    """

    def __init__(
        self,
        on_bytes: Callable[[bytes], object],
        on_break: Callable[[str], object],
        on_end: Callable[[str], object],
    ) -> None:
        self.heard = self._tended = time.monotonic()
        self._session = Session()
        self._connection: SealedConnection | None = None
        self._on_bytes, self._on_break, self._on_end = on_bytes, on_break, on_end

    @property
    def received(self) -> int:
        """How many bytes have come."""
        return self._session.received

    @property
    def unsent(self) -> int:
        """How many bytes the other side may not have."""
        return self._session.kept

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection just now."""
        return self._connection is not None

    def resume(self, connection: SealedConnection, arrived: int) -> None:
        """Goes on over a new connection; the other side has got so many bytes. Raises SessionError."""
        messages = self._session.resume(arrived)
        self.close()
        self._connection, self.heard = connection, time.monotonic()
        connection.on_message, connection.on_end = self.take, self.drop
        for message in messages:
            connection.send(message)

    def write(self, data: bytes) -> None:
        """For the other side, now or when there is a connection."""
        for message in self._session.write(data):
            self.send(message)

    def send(self, message: bytes) -> None:
        """A message that need not arrive."""
        if self._connection is not None:
            self._connection.send(message)

    def tend(self, now: float) -> None:
        """Gives a connection up that carries nothing any more; to be called every other second."""
        if now > self._tended + _SILENCE_SECONDS / 2:  # this process has not run: it was stopped, or starved
            self.heard = now
        self._tended = now
        if self.is_connected and now >= self.heard + _SILENCE_SECONDS:
            self.drop("nothing was heard of it")

    def take(self, message: bytes) -> None:
        """A message has come."""
        self.heard = time.monotonic()
        if message == FAREWELL:
            self._on_end("")
            return
        try:
            data, answers = self._session.take(message)
        except SessionError as error:
            self._on_end(str(error))
            return
        for answer in answers:
            self.send(answer)
        if data:
            self._on_bytes(data)

    def drop(self, reason: str) -> None:
        """The connection is lost."""
        self.close()
        self._on_break(reason)

    def leave(self) -> None:
        """Lets the other side know that this one ends, if there is a connection now."""
        self.send(FAREWELL)
        self.close()

    def close(self) -> None:
        """The connection is not needed any more. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
