"""Threads that complete futures, from the first ``get_future`` on: DDP takes one for every bucket, and waits
for none of them before the end of its backward pass.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.torch.distributed.work import OperationWork

_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 0.02


def watch(work: OperationWork) -> None:
    """Tells the future of ``work`` once it is over."""
    _completion.add(work)


class _Completion:
    """Completes works that somebody has a future of. A thread waits for the oldest, which drives the engine,
    and looks at the others now and then: they may be of other groups, where another order holds. What the
    program has chained to a future may wait for another one, so the next thread takes its turn before.
    """

    def __init__(self) -> None:
        self._added: queue.SimpleQueue[OperationWork] = queue.SimpleQueue()
        self._pending: list[OperationWork] = []  # of the thread that has its turn
        self._turn = threading.Lock()
        self._lock = threading.RLock()  # a signal handler may take a future, too
        self._started = False
        self._next = 0  # threads that wait for their turn

    def add(self, work: OperationWork) -> None:
        """Takes charge of ``work``."""
        self._added.put(work)
        if not self._started:
            with self._lock:
                if not self._started:
                    self._start()
                    self._started = True

    def _start(self) -> None:
        threading.Thread(target=self._run, name="hvd-futures", daemon=True).start()
        self._next += 1

    def _run(self) -> None:
        while True:
            with self._turn:
                with self._lock:
                    self._next -= 1
                work = self._wait()
                with self._lock, contextlib.suppress(RuntimeError):  # no more threads: goes on alone
                    if not self._next:
                        self._start()
            work.tell()
            del work  # the next one may come much later
            with self._lock:
                if self._next:
                    return
                self._next += 1

    def _wait(self) -> OperationWork:
        """One that is over."""
        added, pending = self._added, self._pending
        seconds = _SHORTEST_WAIT
        while True:
            if not pending:
                pending.append(added.get())
            with contextlib.suppress(queue.Empty):
                while True:
                    pending.append(added.get_nowait())
            pending[0].wait_a_little(seconds)
            seconds = min(2 * seconds, _LONGEST_WAIT) if len(pending) == 1 else _SHORTEST_WAIT
            for place, work in enumerate(pending):
                if work.can_be_told():
                    return pending.pop(place)


_completion = _Completion()


def _forget() -> None:
    """In a forked child, where the thread does not exist."""
    global _completion
    _completion = _Completion()


os.register_at_fork(after_in_child=_forget)
