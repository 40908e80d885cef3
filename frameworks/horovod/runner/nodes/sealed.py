"""A connection whose ends have proved the job's secret to each other, in a loop: sealed messages come and
go.
"""

import os
import selectors
import socket
from collections.abc import Callable

from horovod.bootstrap.errors import AuthenticationError
from horovod.bootstrap.network.frames import Opener, Sealer

from .pipes import ReadPipe, WritePipe


class SealedConnection:
    """``on_message`` gets each message. ``on_end`` is called once, with the reason, when the connection has
    ended or carries what the other side has not sealed; it is not after ``close``.
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
        descriptor = connection.detach()
        self._out = WritePipe(selector, os.dup(descriptor))
        self._in = ReadPipe(selector, descriptor, self._feed)

    @property
    def unsent(self) -> int:
        """How many bytes the kernel has not taken yet."""
        return self._out.unsent

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
