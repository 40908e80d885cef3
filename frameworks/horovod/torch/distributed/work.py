"""Operations in flight, as torch.distributed sees them.

The core completes an operation whether or not anybody waits for it; a Work waits, and then puts the result
where it belongs if that is not where the core has put it. Futures are the matter of ``completion``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from horovod import _core
from horovod.common.collective.messages import sender
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.distributed import completion
from horovod.torch.distributed.errors import message_timed_out

if TYPE_CHECKING:
    from horovod.torch.distributed.communicator import Communicator

# Puts the core's outputs (None: it has allocated none) where they belong.
Finish = Callable[["list[_core.Output] | None"], None]

_Work: Any = Work
_SHORTEST_WAIT = 0.001
_NO_LIMIT = timedelta(0)
_AT_ONCE = 0.0  # to wait for what is over


@methods_outside_of_graphs
class OperationWork(_Work):
    """One operation of the core. It is kept by its communicator while it is in flight, so a program may drop
    it without waiting.
    """

    def __init__(
        self,
        communicator: Communicator,
        kind: int,
        handle: int,
        kept: Any,
        finish: Finish | None,
        result: Any,
        timeout: float,
    ) -> None:
        super().__init__()
        self._communicator = communicator
        self._kind = kind
        self._handle = handle
        self._kept = kept  # what the core reads and writes
        self._finish = finish
        self._result = result
        self._timeout = timeout
        self._source = -1
        self._deadline = 0.0  # of the future
        self._done = False  # for the program
        self._over = False  # for the core, too, which a timeout of the future does not wait for
        self._error: BaseException | None = None
        self._told = False  # the future
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Blocks until the operation is complete.

        Args:
            timeout: for how long at most; zero or less: as long as the operation was given.

        Raises:
            CollectiveTimeoutError: it is not complete.
            HorovodInternalError: a rank is gone.
        """
        if not self._done:
            self._complete(timeout.total_seconds() if timeout > _NO_LIMIT else self._timeout)
        self.tell()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As ``wait``."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether ``wait`` would return, or raise, at once."""
        return self._done or self.is_over()

    def is_success(self) -> bool:
        """Whether the operation is complete and has not failed."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """Why it has failed."""
        return self._error

    def result(self) -> Any:
        """The tensors that the operation writes."""
        return self._result

    def source_rank(self) -> int:
        """Of a receive the rank that it came from; -1 for others."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the result."""
        with self._lock:
            if self._future is not None:
                return self._future
            future = self._future = torch.futures.Future()
            self._deadline = time.monotonic() + self._timeout
            done = self._done
        if done:
            self.tell()
        else:
            completion.watch(self)
        return future

    def is_over(self) -> bool:
        """Whether the core is done with its tensors; completes it then, and keeps an error for ``wait``."""
        over = self.ends()
        self.tell()
        return over

    def ends(self) -> bool:
        """As ``is_over``, but does not tell the future."""
        if not _core.poll(self._handle):
            return False
        with contextlib.suppress(Exception):
            self._complete(_AT_ONCE)
        return True

    def can_be_told(self) -> bool:
        """Whether ``tell`` has something to say."""
        return self._done or self.ends()

    def wait_a_little(self, seconds: float) -> None:
        """Drives the engine for so long at most, on behalf of the future."""
        if not self._lock.acquire(blocking=False):  # another thread waits for it, and so drives
            time.sleep(_SHORTEST_WAIT)
            return
        try:
            with contextlib.suppress(Exception):
                self._complete_locked(seconds, time.monotonic() + seconds)
            if not self._done and time.monotonic() > self._deadline:
                self._error = self._timed_out(self._timeout)  # and `_kept` stays until it is over
                self._done = True
        finally:
            self._lock.release()

    def _complete(self, seconds: float) -> None:
        """Waits for so long at most; not for another thread that waits, unless the operation is over."""
        until = time.monotonic() + seconds
        while seconds != _AT_ONCE and self._lock.locked() and not self._done:  # that thread drives
            if time.monotonic() > until:
                raise self._timed_out(seconds)
            time.sleep(_SHORTEST_WAIT)
        with self._lock:  # no acquire: a signal handler that raises after it would leave the lock held
            self._complete_locked(seconds, until)

    def _complete_locked(self, seconds: float, until: float) -> None:
        """A signal handler may raise anywhere in it: all of it can be done again until the handle is
        forgotten.
        """
        if self._done:
            return self._end_late()
        try:
            outputs = _core.wait(self._handle, max(0.0, until - time.monotonic()))
            if self._finish is not None:
                self._finish(outputs)
        except TimeoutError:
            raise self._timed_out(seconds) from None
        except BaseException as error:
            # A signal handler has raised: the operation goes on.
            if not isinstance(error, Exception) or not _core.poll(self._handle):
                raise
            self._error = error
        self._done = True
        self._end()

    def _end_late(self) -> None:
        """Of one whose outcome is told: lets its tensors go once the core is done with them."""
        if not self._over and _core.poll(self._handle):
            self._end()

    def _end(self) -> None:
        _core.forget(self._handle)
        self._kept = self._finish = None
        self._leave()
        self._over = True

    def _leave(self) -> None:
        """The communicator need not keep it any more."""

    def tell(self) -> None:
        """Completes the future of one that is over, and so runs what the program has chained to it."""
        if self._done and self._future is not None and not self._told:
            with self._lock:
                told, self._told = self._told, True
            if not told:
                self._settle_future(self._future)

    def _settle_future(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        elif isinstance(self._error, Exception):
            future.set_exception(self._error)

    def _timed_out(self, seconds: float) -> Exception:
        return self._communicator.timed_out(self._kind, seconds)


@methods_outside_of_graphs
class MessageWork(OperationWork):
    """A send or a receive. ``peer``: the other rank of the group; None, of a receive: the one whose message
    it gets.
    """

    def __init__(
        self,
        communicator: Communicator,
        kind: int,
        handle: int,
        kept: Any,
        arrived: Callable[[], None] | None,
        result: Any,
        peer: int | None,
        tag: int,
    ) -> None:
        super().__init__(communicator, kind, handle, kept, self._deliver, result, communicator.timeout)
        self._arrived = arrived
        self._peer = peer
        self._tag = tag

    def _deliver(self, outputs: list[_core.Output] | None) -> None:
        if self._kind == _core.RECV:
            self._source = self._communicator.ranks.index(sender(outputs))
        if self._arrived is not None:
            self._arrived()

    def _leave(self) -> None:
        self._arrived = None
        self._communicator.messages.discard(self)

    def _timed_out(self, seconds: float) -> Exception:
        return message_timed_out(self._communicator, self._kind == _core.SEND, self._peer, self._tag, seconds)


@methods_outside_of_graphs
class CompletedWork(_Work):
    """An operation that is over."""

    def __init__(self, result: Any = ()) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Returns at once."""
        return True

    def synchronize(self) -> None:
        """Returns at once."""

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> None:
        """None."""

    def result(self) -> Any:
        """The tensors that the operation has written."""
        return self._result

    def source_rank(self) -> int:
        """-1: it is no receive."""
        return -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is complete."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._result)
        return future


@methods_outside_of_graphs
class JointWork(CompletedWork):
    """Several operations that are waited for as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__([work.result() for work in works])
        self._works = works

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Blocks until all are complete; raises the first error."""
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self) -> None:
        """As ``wait``."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether all are complete."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all are complete, and none has failed."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        """The first error."""
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the results of all."""
        return torch.futures.collect_all([work.get_future() for work in self._works]).then(_values)


def joint(works: Sequence[Any]) -> Any:
    """A work for all of several."""
    return works[0] if len(works) == 1 else JointWork(works)


def _values(done: torch.futures.Future[list[torch.futures.Future[Any]]]) -> list[Any]:
    return [future.value() for future in done.value()]
