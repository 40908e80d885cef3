"""A rank's line to the launcher's store: over one connection after another, where a network breaks them."""

import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import (
    AbandonedError,
    AuthenticationError,
    BootstrapError,
    NobodyListensError,
    StartTimeoutError,
)
from .client import StoreClient

TURN_SECONDS = 5.0
"""A wait is asked for anew after so long: a network forgets no connection that carries something, and one
that carries nothing any more is noticed."""
_TRY_SECONDS = 2.0
_Result = TypeVar("_Result")
Connect = Callable[[float], StoreClient]
"""Makes a connection within the seconds that it gets. Raises BootstrapError when it cannot."""


def connect_again(connect: Connect, patience: float) -> StoreClient:
    """Another connection to the launcher, in place of one that is lost.

    One that does not answer is waited for, ``patience`` seconds at most. Raises BootstrapError after that,
    and as soon as nobody listens there, or somebody of another job.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return connect(max(0.1, min(_TRY_SECONDS, deadline - time.monotonic())))
        except (AuthenticationError, NobodyListensError):
            raise
        except BootstrapError:
            if time.monotonic() >= deadline:
                raise


class Line:
    """Asks the store of a launcher that may be stopped for a while, over a network that may lose connections.

    A launcher that does not answer is waited for, ``patience`` seconds at most; one that has closed the
    connection and takes no other one has ended. What is asked may reach the store twice. For one thread.
    """

    def __init__(self, connect: Connect, timeout: float, patience: float) -> None:
        """The first connection has ``timeout``. Raises what ``connect`` does."""
        self._connect = connect
        self._patience = patience
        self._client = connect(timeout)

    def close(self) -> None:
        """Ends it."""
        self._client.close()

    def set(self, key: str, value: bytes) -> None:
        """Stores a value. Raises AbandonedError where the launcher has ended."""
        self._ask(lambda client: client.set(key, value))

    def wait_for(self, key: str) -> bytes:
        """The value of a key, whenever somebody sets it. Raises AbandonedError where the launcher has
        ended.
        """
        while True:
            try:
                return self._ask(lambda client: client.get(key, TURN_SECONDS))
            except StartTimeoutError:
                continue

    def _ask(self, question: Callable[[StoreClient], _Result]) -> _Result:
        while True:
            try:
                return question(self._client)
            except AbandonedError as error:
                self._reconnect(error)

    def _reconnect(self, error: AbandonedError) -> None:
        self._client.close()
        try:
            self._client = connect_again(self._connect, self._patience)
        except AuthenticationError:
            raise
        except BootstrapError:
            raise error from None
