"""One loop that only waits for events: descriptors, signals, the ends of children, and times."""

import selectors
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ..signals import SignalQueue
from .children import Children
from .node import Node

_MOST_SECONDS = 86400.0  # the system takes no number of milliseconds beyond 31 bits


class Attendant(Protocol):
    """What goes on beside the nodes."""

    def tend(self, now: float) -> float:
        """Carries on what is under way. Returns when to call it at the latest."""


class Loop:
    """What the launcher and its agents on other hosts wait with.

    ``selector`` takes callables, which are called when their descriptor is ready. ``on_signal`` is called
    with the number of each signal. ``attendants`` are tended as the nodes are.
    """

    def __init__(self, signals: SignalQueue, children: Children) -> None:
        self.selector = selectors.DefaultSelector()
        self.children = children
        self.attendants: list[Attendant] = []
        self.on_signal: Callable[[int], None] = lambda number: None
        self._signals = signals
        self.selector.register(signals.descriptor, selectors.EVENT_READ, self._take_signals)
        children.reap()

    def step(self, until: float, nodes: Collection[Node]) -> None:
        """Waits for events, at most until ``until``, and handles them; then the nodes go on."""
        now = time.monotonic()
        until = min([until, *(each.tend(now) for each in (*self.attendants, *nodes))])
        timeout = None if until == float("inf") else min(max(0.0, until - time.monotonic()), _MOST_SECONDS)
        for key, _ in self.selector.select(timeout):
            key.data()
        now = time.monotonic()
        for node in tuple(nodes):  # what one tells may bring others, or end them
            node.tend(now)

    @property
    def continued(self) -> int:
        """How many SIGCONT have come, handled or not."""
        return self._signals.continued

    def stop(self, seen: int) -> None:
        """Stops this process until more SIGCONT than ``seen`` have come."""
        self._signals.stop(seen)

    def catch(self, number: int) -> None:
        """Takes one more signal."""
        self._signals.catch(number)

    def wake(self) -> None:
        """Ends the waiting; may be called on any thread."""
        self._signals.wake()

    def close(self) -> None:
        """Waits for nothing any more; descriptors stay their owners'."""
        self.selector.close()

    def _take_signals(self) -> None:
        numbers: Sequence[int] = self._signals.take()
        self.children.reap()
        for number in numbers:
            self.on_signal(number)
