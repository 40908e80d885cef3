"""The seam to the core: one communicator for each process group, by which operations of its ranks start.

Operations have no names here: the ranks of a process group start them in one order, which is their identity.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from horovod import _core
from horovod.common import basics
from horovod.common.collective.messages import ANY_RANK, check_tag
from horovod.common.collective.tensor_glue import Spec
from horovod.common.reduce_ops import Sum
from horovod.torch.distributed.errors import job_has_ended, timed_out, was_destroyed
from horovod.torch.distributed.work import CompletedWork, Finish, MessageWork, OperationWork

Part = TypeVar("Part")
_MANY_MESSAGES = 64
_left_open: list[OperationWork] = []
_of_the_job: weakref.WeakSet[Communicator] = weakref.WeakSet()  # end with it
COMPLETED = CompletedWork()
"""Of every operation that is not asynchronous: nobody asks it anything but to wait."""


class Communicator:
    """The ranks of one process group, which are a process set of the core of its own.

    Attributes:
        rank: of this process in the group.
        ranks: of the group's processes in the job.
        order: the ranks of the group as the process set has them, where that is another order: ascending in
            the job. None: it is the same.
        name: of the group.
        timeout: seconds that an operation may take, unless it says so itself.
        in_flight: asynchronous operations in the order of their start; the core keeps their tensors, and this
            sees to it that they are let go when they are over.
        messages: likewise sends and receives, which may be complete in any order.
    """

    def __init__(
        self,
        process_set: int,
        rank: int,
        ranks: Sequence[int],
        name: str,
        timeout: float,
        close: Callable[[], None],
    ) -> None:
        self.rank = rank
        self.ranks = list(ranks)
        self.size = len(self.ranks)
        order = sorted(range(self.size), key=self.ranks.__getitem__)
        self.order = None if order == list(range(self.size)) else order
        self.name = name
        self.timeout = timeout
        self.in_flight: deque[OperationWork] = deque()
        self.messages: set[MessageWork] = set()
        self._reap_at = _MANY_MESSAGES  # so many messages are in flight that some are over, perhaps
        self.started = 0
        self._set = process_set
        self._close = close
        self._closed = False
        _of_the_job.add(self)

    def arranged(self, parts: Sequence[Part]) -> Sequence[Part]:
        """One part for each rank of the group, in the order of the process set."""
        return parts if self.order is None else [parts[rank] for rank in self.order]

    def position(self, rank: int) -> int:
        """In the process set, of a rank of the group."""
        return rank if self.order is None else self.order.index(rank)

    def start(
        self,
        kind: int,
        specs: Sequence[Spec],
        options: Any,
        kept: Any = None,
        finish: Finish | None = None,
        result: Any = (),
        op: int = Sum,
        prescale: float = 1.0,
        root: int = 0,
        splits: Sequence[int] | None = None,
    ) -> Any:
        """Starts an operation, and completes it unless ``options`` say that it is asynchronous.

        Args:
            kind: of the core.
            specs: its tensors.
            options: those of torch.distributed.
            kept: what must stay alive while it is in flight.
            finish: puts the result where it belongs.
            result: the tensors that it writes.
            op, prescale: of a reduction.
            root: of a broadcast, a rank of the group.
            splits: of an alltoall, in the order of the process set, as all parts of a tensor.

        Returns:
            A Work.
        """
        self.started += 1
        if self.in_flight:
            self._retire()
        limit = options.timeout
        seconds = self.timeout if limit.days < 0 else limit.total_seconds()
        root = self.ranks[root]
        if options.asyncOp:
            handle = _core.submit(kind, None, specs, op, prescale, 1.0, root, self._set, kept, splits)
            work = OperationWork(self, kind, handle, kept, finish, result, seconds)
            self.in_flight.append(work)
            return work
        try:
            outputs = _core.run(
                kind, None, specs, op, prescale, 1.0, root, self._set, kept, splits, timeout=seconds
            )
        except TimeoutError:
            raise self.timed_out(kind, seconds) from None
        if finish is not None:
            finish(outputs)
        return COMPLETED

    def message(
        self,
        kind: int,
        peer: int | None,
        tag: int,
        spec: Spec,
        arrived: Callable[[], None] | None,
        kept: Any,
        result: Any,
    ) -> MessageWork:
        """Starts to send to one rank of the group, or to receive from it.

        Args:
            kind: of the core: SEND or RECV.
            peer: the other rank of the group; None: receives from any of them.
            tag: which messages fit.
            spec: the tensor, of which a message has the bytes.
            arrived: puts the bytes that have come where they belong; None: they are there.
            kept: what must stay alive while it is in flight.
            result: the tensors that it writes.

        Raises:
            ValueError: there are no such tags.
        """
        root = ANY_RANK if peer is None else self.ranks[peer]
        if len(self.messages) >= self._reap_at:
            for other in list(self.messages):
                other.is_over()
            self._reap_at = max(_MANY_MESSAGES, 2 * len(self.messages))
        handle = _core.submit(
            kind, None, (spec,), root=root, process_set=self._set, keep=kept, tag=check_tag(tag)
        )
        work = MessageWork(self, kind, handle, kept, arrived, result, peer, tag)
        self.messages.add(work)
        return work

    def timed_out(self, kind: int, seconds: float) -> Exception:
        """The error of an operation that is late."""
        return timed_out(self, _NAMES[kind], seconds)

    def close(self) -> None:
        """Ends the communicator; does nothing when it has ended. What is in flight all the same keeps its
        tensors until it is over, as the core may still write to them where the job goes on.
        """
        if self._closed:
            return
        self._closed = True
        try:
            _left_open.extend((*self.in_flight, *self.messages))  # before anything that may raise
            self._close()
            for work in [work for work in _left_open if work.is_over()]:
                with contextlib.suppress(ValueError):  # another thread lets it go, too
                    _left_open.remove(work)
            self.in_flight.clear()
            self.messages.clear()
            self.__class__ = _Destroyed
        except Exception:
            if sys is not None and not sys.is_finalizing():  # else what this needs is gone
                raise

    def check_health(self) -> None:
        """Raises HorovodInternalError, which says why, once the job has failed."""
        _core.check_health()

    def end(self) -> None:
        """The job has ended before the group. What the numbers of its process sets name in the next job is
        not this group.
        """
        self._close = _nothing
        self.__class__ = _Ended

    def _retire(self) -> None:
        """Lets those go that are over, from the oldest on: the program may have dropped them."""
        with contextlib.suppress(IndexError, ValueError):  # another thread does so, too
            while (oldest := self.in_flight[0]).is_over():
                self.in_flight.remove(oldest)  # and no other, which may have become the oldest by now


class _Ended(Communicator):
    """Of a group that has outlived its job."""

    def start(self, *_arguments: Any, **_options: Any) -> Any:
        raise job_has_ended(self.name)

    message = check_health = start


class _Destroyed(Communicator):
    """Of a group that the program has destroyed."""

    def start(self, *_arguments: Any, **_options: Any) -> Any:
        raise was_destroyed(self.name)

    message = check_health = start


def _nothing() -> None:
    """What an ended job leaves to do."""


def _end_all() -> None:
    for communicator in list(_of_the_job):
        communicator.end()
    _of_the_job.clear()


basics.on_shutdown(_end_all)


class LoneCommunicator(Communicator):
    """Of a group of one: every operation is a copy, and needs no engine."""

    def __init__(self, name: str, timeout: float) -> None:
        super().__init__(0, 0, [0], name, timeout, _nothing)
        _of_the_job.discard(self)

    def start(
        self,
        kind: int,
        specs: Sequence[Spec],
        options: Any,
        kept: Any = None,
        finish: Finish | None = None,
        result: Any = (),
        *_reduction: Any,
        **_others: Any,
    ) -> Any:
        self.started += 1
        for source, target, _, _, size, room in specs:
            if target and room != size:  # among others the core sees that
                raise ValueError(
                    f"{_NAMES[kind]} in process group {self.name!r} of one rank: the input has {size} bytes, "
                    f"and the output {room}."
                )
            if source != target and size:
                ctypes.memmove(target, source, size)
        if finish is not None:
            finish(None)
        return CompletedWork(result)

    def check_health(self) -> None:
        """It needs no job."""

    def message(self, *_arguments: Any, **_options: Any) -> Any:
        raise ValueError(
            f"Process group {self.name!r} has one rank, and so nobody to send to or receive from."
        )


_NAMES = {
    _core.ALLREDUCE: "An allreduce",
    _core.ALLGATHER: "An allgather",
    _core.BROADCAST: "A broadcast",
    _core.BARRIER: "A barrier",
    _core.ALLTOALL: "An alltoall",
    _core.REDUCESCATTER: "A reduce-scatter",
}
