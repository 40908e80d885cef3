"""Submission of operations whose input is still on its way from a device.

The caller must not wait for the device (the backward pass goes on meanwhile), and the core must not see bytes
that are not there yet. So one thread waits for each input in turn and submits. It exists only once something
was deferred.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from horovod import _core

if TYPE_CHECKING:
    from concurrent.futures import Future

Ready = Callable[[], None]
Submit = Callable[[], int]
_Item = tuple["Future[int]", list[Ready], Submit]


class DeferredSubmitter:
    """Gives out negative handles at once and learns the core's handle later. Only for named operations: the
    order in which unnamed ones start is their identity, so they cannot wait their turn here.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)
        self._futures: dict[int, Future[int]] = {}
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def new_handle(self) -> int:
        """A handle for an operation that needs no submission because it has nothing to do."""
        return next(self._numbers)

    def submit(self, handle: int, ready: list[Ready], submit: Submit) -> None:
        """Calls ``submit`` once all of ``ready`` have returned, without waiting for that; ``handle`` is a new
        one. A signal handler may raise anywhere in it.
        """
        from concurrent.futures import Future  # late: most programs defer nothing

        future: Future[int] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_work, args=(self._queue,), name="hvd-deferred", daemon=True
                )
            if not self._thread.is_alive():  # or a start was interrupted
                self._thread.start()
            self._queue.put((future, ready, submit))  # before ``stop`` may tell the thread to end
            self._futures[int(handle)] = future

    def resolve(self, handle: int, timeout: float | None = None) -> int | None:
        """Waits for the core's handle; None when there never was one. Raises what the submission raised, and
        TimeoutError after ``timeout`` seconds.
        """
        future = self._futures.get(handle)
        if future is None:
            return None
        if timeout is not None and not _are_done([future], timeout):
            raise TimeoutError(f"The input is not ready after {timeout:g} seconds.")
        return future.result()

    def flush(self) -> None:
        """Waits until all that was deferred has been submitted."""
        _are_done(list(self._futures.values()))

    def drop(self, handle: int) -> None:
        """Forgets a handle that was waited for; nothing for one that is not deferred."""
        self._futures.pop(handle, None)

    def poll(self, handle: int) -> bool:
        """Whether waiting for ``handle`` would return at once."""
        future = self._futures.get(handle)
        if future is None:
            return True
        return future.done() and (future.exception() is not None or _core.poll(future.result()))

    def stop(self) -> None:
        """Ends the thread after what it has: the handles given out stay valid. A later ``submit`` starts
        another.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None and thread.is_alive():
                self._queue.put(None)
                thread.join()

    def forget(self) -> None:
        """For a forked child: the thread did not come along, and neither must its queue."""
        self._futures = {}
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()


def _are_done(futures: list[Future[int]], timeout: float | None = None) -> bool:
    """Waits for all of them, at most ``timeout`` seconds."""
    from concurrent.futures import wait

    return not futures or not wait(futures, timeout).not_done


def _work(items: queue.SimpleQueue[_Item | None]) -> None:
    while (item := items.get()) is not None:
        future, ready, submit = item
        try:
            for wait in ready:
                wait()
            future.set_result(submit())
        except Exception as error:  # is raised where the handle is waited for
            future.set_exception(error)
