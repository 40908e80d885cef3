"""Operations in flight: what each handle keeps alive, and what becomes of it when the operation is
complete.

A handle is the number of an operation. Its result is kept until it is waited for, whether the program keeps
the handle itself or only its number (in an array, say). Handles that were dropped without being waited for
may exist as numbers somewhere, so their results are kept too, up to a bound; to wait for one beyond it is an
error, not None.
"""

from __future__ import annotations

import contextlib
import operator
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

from horovod import _core
from horovod.common.collective.awaiting import CompletionWatch
from horovod.common.collective.deferred import DeferredSubmitter
from horovod.common.collective.tensor_glue import Placement, Purpose, Result, Spec, Tensor, TensorGlue
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.reduce_ops import Adasum, Average

_BOOL = _core.DTYPES["bool"]
_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64")
FLOATING = frozenset(_core.DTYPES[name] for name in _FLOATS)
"""The numbers of the floating-point types."""

_INPUT_BYTES = operator.itemgetter(4)

_MOST_DROPPED = 16_384  # results of operations whose handle objects are gone: each 4 KB and its tensors
_MANY_DROPPED = 4_096  # of which somebody should hear
_SHOWN = 3
_MOST_DROPPED_BYTES = 1 << 30
_FEWEST_TO_SWEEP = 1024
_MOST_LOST = 131_072  # handles of which it is known one by one why there is no result

_RELEASED = (
    "The result of operation {} was released: its handle object had been dropped, and too many results that "
    "nobody had waited for were kept. Keep the handles themselves until hvd.synchronize, or wait earlier."
)
_TOO_MANY = (
    f"More than {_MOST_DROPPED:,} asynchronous operations, or {_MOST_DROPPED_BYTES >> 20:,} MiB, have "
    "ended and nobody has waited for them: the oldest results are released. Give all handles to "
    "hvd.synchronize."
)
_MANY = (
    "{:,} asynchronous operations have been started whose handles the program has dropped, and nobody has "
    "waited for them, the last being {}. Their results are kept, for you may have their numbers. Give each "
    "handle to hvd.synchronize, or start the operation by the function without _async."
)
_OF_PARENT = "Operation {} belongs to the process that this one was forked from, which can wait for it."

# Makes the result of what was kept and of the core's outputs.
Finish = Callable[[Any, "list[_core.Output] | None"], Any]

# (how to make the result, or None when it is `kept` itself; what must stay alive meanwhile; bytes of its
# tensors). As few containers as can be: thousands may be in flight, and each makes Python collect garbage
# sooner, which goes through all of them.
Entry = tuple[Finish | None, Any, int]


def first_of(kept: Sequence[Any], outputs: list[_core.Output] | None) -> Any:
    """Finishes an operation that keeps (result, input)."""
    return kept[0]


def _finish_one(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> Any:
    return placements[0].finish(None if outputs is None else outputs[0])


def _finish_all(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> list[Any]:
    given: Sequence[_core.Output | None] = [None] * len(placements) if outputs is None else outputs
    return [placement.finish(output) for placement, output in zip(placements, given, strict=True)]


class Handles:
    """The handles of one adapter. A handle is the core's number, or a negative one while the submission is
    deferred.
    """

    def __init__(self) -> None:
        self._handle_map: dict[int, Entry] = {}
        self._deferred = DeferredSubmitter()
        self._watch = CompletionWatch()
        self._dropped: deque[int] = deque()
        self._sweep_above = _FEWEST_TO_SWEEP
        self._has_told_of_many = False
        self._lost: dict[int, str] = {}  # why there is no result, by handle
        self._lost_to = -1  # up to this handle `_lost` may be incomplete
        self._lost_down_to = 0  # the same of deferred ones
        self._handle = _core.handle_type(self._handle_map, self._dropped)

    def start(
        self,
        purpose: Purpose,
        name: str | None,
        placements: list[Placement[Any]],
        grouped: bool = False,
        root: int = 0,
        process_set: int = 0,
        splits: Sequence[int] | None = None,
        finish: Finish | None = None,
        tag: int = 0,
    ) -> int:
        """Submits one operation over ``placements``, which were made for ``purpose``, and returns its handle.
        An empty group is complete at once. ``process_set`` is the number of one that this rank is part of,
        ``tag`` that of a message. ``finish`` makes the result of ``placements`` and the core's outputs, where
        it is not simply what the placements make of them.
        """
        kind, op, prescale, postscale = purpose[:4]
        finish = finish or (_finish_all if grouped else _finish_one)
        if not placements:
            return self._keep(self._deferred.new_handle(), (finish, placements, 0))
        specs = [placement.spec for placement in placements]
        if kind != _core.ALLGATHER:  # what is gathered may be reduced later, as other types
            check_types(op, [spec[2] for spec in specs])

        options = (op, prescale, postscale, root, process_set)
        location = placements[0].location
        entry = (finish, placements, bytes_of(specs))
        if len(self._dropped) > self._sweep_above:
            self.sweep()
        ready = [placement.ready for placement in placements if placement.ready is not None]
        if ready and name is not None:
            handle = self._keep(self._deferred.new_handle(), entry)
            self._deferred.submit(
                handle,
                ready,
                lambda: _core.submit(kind, name, specs, *options, placements, splits, 0, *location, tag),
            )
            return handle
        for wait in ready:
            wait()
        return _core.submit_for(
            self._handle, entry, kind, name, specs, *options, None, splits, 0, *location, tag
        )

    def start_notice(self, name: str, bits: int, process_set: ProcessSet) -> int:
        """In place of the operation ``name``, which then takes place on no rank: to wait for it raises
        ``Notice`` on all, with what is in all of them. Returns the handle. ``bits``: from 2 to 255.
        """
        number = check_process_set(process_set)
        entry = (None, None, 0)
        return _core.submit_for(
            self._handle, entry, _core.ALLREDUCE, name, (), process_set=number, notice=bits
        )

    def _keep(self, number: int, entry: Entry) -> int:
        handle = self._handle(number)
        self._handle_map[number] = entry
        return handle

    def poll(self, handle: int) -> bool:
        """Whether an operation is complete, so that ``synchronize(handle)`` returns at once.

        Args:
            handle: of an asynchronous operation.

        Returns:
            True when the operation is complete, or has failed. On a GPU it is complete when the GPU is done,
            so the result may be used then, even without ``synchronize``.
        """
        return _core.poll(handle) if handle >= 0 else self._deferred.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Waits for an asynchronous operation.

        Args:
            handle: what started it returned this.

        Returns:
            Its result: a tensor, a list for a grouped operation, (tensor, received splits) for an alltoall.
            None for a handle that was waited for already.

        Raises:
            TensorMismatchError: the ranks disagree about the operation; the same on every rank.
            HorovodInternalError: a rank or the engine is gone (``hvd.shutdown()`` ends all operations in
                flight), or the result was given up.
        """
        entry = self._handle_map.get(handle)
        if entry is None:
            return self._nothing(handle)
        try:
            outputs = _core.wait(handle) if handle >= 0 else self._wait_deferred(handle, None)
        except BaseException as error:
            self._failed(handle, error)
            raise
        # As in _finish: a call costs as much as the rest here, and a step has a thousand of them.
        finish, kept, _ = entry
        result = kept if finish is None else finish(kept, outputs)
        if handle >= 0:
            _core.forget(handle, self._handle_map)
        else:
            self._forget(handle)
        return result

    def wait(self, handle: int, timeout: float | None = None) -> Any:
        """As ``synchronize``, with a limit.

        Args:
            handle: of an asynchronous operation.
            timeout: seconds to wait at most; None: no limit.

        Returns:
            The result, as ``synchronize``.

        Raises:
            TimeoutError: the operation is not complete. The handle stays valid, and the tensors stay in use.
        """
        entry = self._handle_map.get(handle)
        if entry is None or timeout is None:
            return self.synchronize(handle)
        timeout = max(0.0, timeout)
        try:
            outputs = _core.wait(handle, timeout) if handle >= 0 else self._wait_deferred(handle, timeout)
        except BaseException as error:
            self._failed(handle, error)
            raise
        return self._finish(handle, entry, outputs)

    async def wait_async(self, handle: int) -> Any:
        """As ``synchronize``, to be awaited: ``result = await hvd.wait_async(handle)``. The event loop goes
        on meanwhile; cancelling leaves the handle valid.

        Args:
            handle: of an asynchronous operation.

        Returns:
            The result, as ``synchronize``.

        Raises:
            HorovodInternalError: as for ``synchronize``, or another task has waited for the operation.
        """
        if handle in self._handle_map and not self.poll(handle):
            await self._watch.until(lambda: self.poll(handle))
            if handle not in self._handle_map:
                raise HorovodInternalError("Another task has waited for the operation.")
        return self.synchronize(handle)

    def drop(self, handle: int) -> None:
        """For one whose result nobody will wait for."""
        _core.abandon(handle)
        self._dropped.append(handle)

    def sweep(self) -> None:
        """Releases the oldest results of dropped handles, as far as they are more than the bound allows."""
        dropped = {handle: None for handle in self._dropped_now() if handle in self._handle_map}
        if len(dropped) >= _MANY_DROPPED and not self._has_told_of_many:
            self._has_told_of_many = True
            last = ", ".join(repr(_core.name_of(handle)) for handle in list(dropped)[-_SHOWN:])
            warnings.warn(_MANY.format(len(dropped), last), RuntimeWarning, stacklevel=3)
        total = sum(map(self._bytes_kept, dropped))
        excess = len(dropped) - _MOST_DROPPED
        if excess > 0 or total > _MOST_DROPPED_BYTES:
            warnings.warn(_TOO_MANY, RuntimeWarning, stacklevel=3)
        for handle in list(dropped):
            if excess <= 0 and total <= _MOST_DROPPED_BYTES:
                break
            if self.poll(handle):
                total -= self._bytes_kept(handle)
                excess -= 1
                del dropped[handle]
                self._release(handle)
        self._dropped.extendleft(reversed(dropped))
        self._sweep_above = max(_FEWEST_TO_SWEEP, 2 * len(dropped))

    def reset(self) -> None:
        """After shutdown. All operations have ended by then; their handles say how when they are waited
        for.
        """
        self._deferred.stop()
        self._watch.stop()

    def reset_in_child(self) -> None:
        """After fork: the operations of the parent are not the child's."""
        self._deferred.forget()
        self._lost.update(dict.fromkeys(self._handle_map, _OF_PARENT))
        self._handle_map.clear()
        self._dropped.clear()
        self._sweep_above = _FEWEST_TO_SWEEP
        self._watch.forget()

    def _finish(self, handle: int, entry: Entry, outputs: list[_core.Output] | None) -> Any:
        finish, kept, _ = entry
        result = kept if finish is None else finish(kept, outputs)
        self._forget(handle)
        return result

    def _forget(self, handle: int) -> None:
        """After the result is made: until then a signal handler may raise, and the wait is taken up again."""
        if handle >= 0:
            _core.forget(handle, self._handle_map)
        else:
            self._handle_map.pop(handle, None)  # another thread may have waited for it too
            self._deferred.drop(handle)

    def _nothing(self, handle: int) -> None:
        if self._lost and handle in self._lost:
            raise HorovodInternalError(self._lost[handle].format(handle))
        if 0 <= handle <= self._lost_to or self._lost_down_to <= handle < 0:
            raise HorovodInternalError(
                f"Operation {handle} was waited for already, or: {_RELEASED}".format(handle)
            )

    def _dropped_now(self) -> list[int]:
        taken = []
        with contextlib.suppress(IndexError):  # while other threads may add
            while True:
                taken.append(self._dropped.popleft())
        return taken

    def _bytes_kept(self, handle: int) -> int:
        entry = self._handle_map.get(handle)
        return 0 if entry is None else entry[2]

    def _release(self, handle: int) -> None:
        with contextlib.suppress(Exception):  # nobody is left to be told; what is in place comes to its place
            self.wait(handle, 0.0)
        self._forget(handle)
        self._lost[handle] = _RELEASED
        while len(self._lost) > _MOST_LOST:
            oldest = next(iter(self._lost))
            self._lost_to = max(self._lost_to, oldest)
            self._lost_down_to = min(self._lost_down_to, oldest)
            del self._lost[oldest]

    def _failed(self, handle: int, error: BaseException) -> None:
        """Forgets the handle, unless its operation goes on: then the wait was ended by its limit, or by a
        signal handler that raised, and the core still uses the tensor.
        """
        if isinstance(error, TimeoutError):
            return
        if self.poll(handle):
            self._forget(handle)
        else:  # the program may start it again, as the next cell of a notebook does
            _core.abandon(handle)

    def _wait_deferred(self, handle: int, timeout: float | None) -> list[_core.Output] | None:
        limit = None if timeout is None else time.monotonic() + timeout
        core_handle = self._deferred.resolve(handle, timeout)
        rest = None if limit is None else max(0.0, limit - time.monotonic())
        return None if core_handle is None else _core.wait(core_handle, rest)


class Submission(Handles, Generic[Tensor]):
    """What the operations of one adapter are made of: handles, the glue to its tensors, and how the framework
    records an operation by which it is to differentiate.
    """

    def __init__(self, glue: TensorGlue[Tensor]) -> None:
        super().__init__()
        self.glue = glue
        self._describe = glue.describe
        self._overwrites = glue.overwrites

    def recorded(self, operation: str, tensors: Sequence[Tensor], *arguments: Any) -> list[Tensor]:
        """An operation by which the framework can differentiate; for adapters of one that does.

        Args:
            operation: its name in ``operations.OPERATIONS``.
            tensors: one, or those of a group.
            arguments: in the order of that list.

        Returns:
            The results of the tensors; after that of an alltoall with splits, the received splits.
        """
        raise NotImplementedError

    def place_group(self, tensors: list[Tensor], result: Result, purpose: Purpose) -> list[Placement[Tensor]]:
        """The placements of tensors that travel as one operation, which must be on one device."""
        placements = self.glue.place_group(tensors, result, purpose)
        devices = {self.glue.device(tensor) for tensor in tensors}
        if len(devices) > 1:
            found = ", ".join(sorted(str(device) for device in devices))
            raise ValueError(f"The tensors of a group must be on one device, found {found}.")
        return placements


def bytes_of(specs: Iterable[Spec]) -> int:
    """Of the inputs."""
    return sum(map(_INPUT_BYTES, specs))


def check_types(op: int, dtypes: Iterable[int]) -> None:
    """Raises ValueError for a reduction that one of the types does not have."""
    if op == Average and any(dtype == _BOOL for dtype in dtypes):
        raise ValueError(
            "A tensor of bool has no average; use op=hvd.Sum, Min, Max or Product, or convert it."
        )
    if op == Adasum and any(dtype not in FLOATING for dtype in dtypes):
        raise ValueError("Adasum is defined for floating-point tensors only; use op=hvd.Sum or hvd.Average.")
