"""Who waits in the store for which keys, and until when. Pure: keys and times in."""

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_NEVER = float("inf")


class Waiter(Protocol):
    """A client, which waits for one thing at a time."""

    waiting: "Wait | None"


Client = TypeVar("Client", bound=Waiter)


@dataclass(eq=False)
class Wait(Generic[Client]):
    """One request: all of ``keys`` are wanted, and those in ``missing`` are not there yet."""

    client: Client
    keys: list[bytes]
    missing: set[bytes]

    @property
    def is_open(self) -> bool:
        """Whether it has got no answer yet."""
        return self.client.waiting is self


class Waits(Generic[Client]):
    """All of a store."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, list[Wait[Client]]] = {}
        self._deadlines: list[tuple[float, int, Wait[Client]]] = []
        self._order = itertools.count()

    def add(self, wait: Wait[Client], deadline: float) -> None:
        """From now on, until it is ended."""
        for key in wait.missing:
            self._by_key.setdefault(key, []).append(wait)
        heapq.heappush(self._deadlines, (deadline, next(self._order), wait))

    def end(self, wait: Wait[Client]) -> None:
        """It waits no longer."""
        wait.client.waiting = None
        for key in wait.missing:
            remaining = [other for other in self._by_key.pop(key, []) if other is not wait]
            if remaining:
                self._by_key[key] = remaining

    def found(self, key: bytes) -> list[Wait[Client]]:
        """A key is there. Returns those that wait for nothing more."""
        waits = self._by_key.pop(key, [])
        for wait in waits:
            wait.missing.discard(key)
        return _open(wait for wait in waits if not wait.missing)

    def on(self, is_meant: Callable[[bytes], bool]) -> list[Wait[Client]]:
        """Those that wait for a key of which this is true."""
        return _open([wait for key in self._by_key if is_meant(key) for wait in self._by_key[key]])

    def expired(self, now: float) -> list[Wait[Client]]:
        """Those whose time is over, once."""
        found = []
        while self.next_deadline() <= now:
            found.append(heapq.heappop(self._deadlines)[2])
        return _open(found)

    def next_deadline(self) -> float:
        """When ``expired`` has something (infinity: never)."""
        return self._deadlines[0][0] if self._deadlines else _NEVER


def _open(waits: Iterable[Wait[Client]]) -> list[Wait[Client]]:
    return [wait for wait in dict.fromkeys(waits) if wait.is_open]
