"""A worker's line to a store that lives as long as its job: over one connection after another."""

import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import AbandonedError, AuthenticationError, BootstrapError, StartTimeoutError
from .client import StoreClient

TURN_SECONDS = 5.0
"""A wait is asked for anew after so long: a network forgets no connection that carries something, and one
that carries nothing any more is noticed."""
_CLOSED_SECONDS = 2.0
_Result = TypeVar("_Result")


class Line:
    """Asks the store of a launcher that may be stopped for a while, over a network that may lose connections.

    A launcher that does not answer is waited for, ``patience`` seconds at most; one that has closed the
    connection and takes no other one has ended. What is asked may reach the store twice. For one thread.
    """

    def __init__(self, connect: Callable[[float], StoreClient], timeout: float, patience: float) -> None:
        """``connect`` makes a connection within the seconds that it gets; the first one has ``timeout``.
        Raises BootstrapError when it cannot.
        """
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
        is_closed = not isinstance(error.__cause__, TimeoutError)
        self._client.close()
        deadline = time.monotonic() + (_CLOSED_SECONDS if is_closed else self._patience)
        try:
            self._client = self._connect(max(0.1, deadline - time.monotonic()))
        except AuthenticationError:
            raise
        except BootstrapError:
            raise error from None
