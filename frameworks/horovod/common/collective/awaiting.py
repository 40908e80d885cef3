"""Waiting for operations from asyncio, without holding up the event loop.

One thread asks for all awaited operations whether they are complete, at intervals of an eighth of the time
that the youngest has been waited for, within bounds: so the answer is late by a small part of the time that
the operation took. The thread exists from the first wait on and sleeps while nothing is awaited.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_SHORTEST = 50e-6
_LONGEST = 5e-3


class _Waiter:
    """One coroutine that waits for one operation."""

    def __init__(
        self, done: Callable[[], bool], loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]
    ) -> None:
        self.since = time.monotonic()
        self._done = done
        self._loop = loop
        self._future = future

    def settled(self) -> bool:
        """Whether there is nothing more to do, after waking the coroutine if its operation is complete."""
        if self._future.cancelled():
            return True
        if not self._done():
            return False
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._wake)
        return True

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class CompletionWatch:
    """Wakes coroutines when what they wait for is complete. Never consumes a result, so a coroutine may be
    cancelled at any time.
    """

    def __init__(self) -> None:
        self._added: queue.SimpleQueue[_Waiter | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def until(self, done: Callable[[], bool]) -> None:
        """Returns when ``done()``, which another thread calls, is true."""
        import asyncio  # late: most programs never use it

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_watch, args=(self._added,), name="hvd-awaiting", daemon=True
                )
            if not self._thread.is_alive():  # or a start was interrupted
                self._thread.start()
            self._added.put(_Waiter(done, loop, future))
        await future

    def stop(self) -> None:
        """Ends the thread once everything awaited is complete. A later wait starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._added.put(None)
                self._added = queue.SimpleQueue()

    def forget(self) -> None:
        """For a forked child: the thread did not come along, and neither must its queue."""
        self._added = queue.SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()


def _watch(added: queue.SimpleQueue[_Waiter | None]) -> None:
    waiters: list[_Waiter] = []
    going_on = True
    while going_on or waiters:
        try:
            waiter = added.get(timeout=_interval(waiters)) if waiters else added.get()
        except queue.Empty:
            pass
        else:
            if waiter is None:
                going_on = False
            else:
                waiters.append(waiter)
        waiters = [waiter for waiter in waiters if not waiter.settled()]


def _interval(waiters: list[_Waiter]) -> float:
    waited = time.monotonic() - max(waiter.since for waiter in waiters)
    return min(max(waited / 8, _SHORTEST), _LONGEST)
