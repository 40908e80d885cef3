"""One pass over batches that a thread of its own reads ahead of the program."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Batch = TypeVar("Batch")

PATIENCE = 5.0  # seconds that a pass which ends early waits for a reader that may be stuck


class ReadAhead(Generic[Batch]):
    """``read`` is called in the thread, and at most ``limit`` of its batches wait for the program."""

    def __init__(self, read: Callable[[], Iterable[Batch]], limit: int) -> None:
        self._read = read
        self._limit = limit
        self._ready: deque[Batch] = deque()
        self._error: BaseException | None = None
        self._has_ended = self._is_closed = False
        self._changed = threading.Condition()
        self._process = os.getpid()
        self.given, self.waits, self.waited = 0, 0, 0.0
        """Batches that the program has, for how many of them it has waited, and how long (seconds)."""
        # A daemon: a reader that never returns must not keep a program that has ended.
        self._thread = threading.Thread(target=self._run, name="horovod-read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self._refuse_in_child()
            with self._changed:
                self._wait()
                if not self._ready:
                    break
                batch = self._ready.popleft()
                self._changed.notify_all()
            self.given += 1
            yield batch
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends the thread after the batch that it reads now, for which it waits a moment. What it has read is
        given up. In a forked child there is nothing to end.
        """
        if os.getpid() != self._process:
            return
        with self._changed:
            self._is_closed = True
            self._ready.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE)

    def _refuse_in_child(self) -> None:
        """There the thread is not, and its lock may be held for ever."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"horovod.data: process {os.getpid()} was forked within a pass of process {self._process}, "
                "whose thread reads the batches. Begin a pass of its own in each process"
            )

    def _wait(self) -> None:
        """Until a batch is there, or none will come."""
        if self._is_decided():
            return
        start = time.monotonic()
        self._changed.wait_for(self._is_decided)
        self.waits += 1
        self.waited += time.monotonic() - start

    def _is_decided(self) -> bool:
        return bool(self._ready) or self._has_ended or self._is_closed

    def _run(self) -> None:
        try:
            for batch in self._read():
                if not self._keep(batch):
                    break
        except BaseException as error:  # the program gets it behind the batches that came before
            self._error = error
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _keep(self, batch: Batch) -> bool:
        """Whether the pass goes on, once there was room for the batch."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._ready) < self._limit)
            if not self._is_closed:
                self._ready.append(batch)
                self._changed.notify_all()
            return not self._is_closed
