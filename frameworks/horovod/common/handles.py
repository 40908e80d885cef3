"""Operations in flight: what each handle keeps alive, and what becomes of it when the operation is
complete.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common.awaiting import CompletionWatch
from horovod.common.deferred import DeferredSubmitter
from horovod.common.exceptions import HorovodInternalError
from horovod.common.placement import Placement
from horovod.common.reduce_ops import Adasum, Average, Sum

_BOOL = _core.DTYPES["bool"]
FLOATING = frozenset(_core.DTYPES[name] for name in ("float16", "bfloat16", "float32", "float64"))
"""The numbers of the floating-point types."""

_FEWEST_TO_SWEEP = 1024

# Makes the result of what was kept and of the core's outputs.
Finish = Callable[[Any, "list[_core.Output] | None"], Any]

# (how to make the result, or None when it is `kept` itself; what must stay alive meanwhile)
Entry = tuple[Finish | None, Any]


def first_of(kept: Sequence[Any], outputs: list[_core.Output] | None) -> Any:
    """Finishes an operation that keeps (result, input)."""
    return kept[0]


def _finish_one(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> Any:
    return placements[0].finish(None if outputs is None else outputs[0])


def _finish_all(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> list[Any]:
    given: Sequence[_core.Output | None] = [None] * len(placements) if outputs is None else outputs
    return [placement.finish(output) for placement, output in zip(placements, given, strict=True)]


def _references(handles: Iterable[int]) -> list[int]:
    return [sys.getrefcount(handle) for handle in handles]


_sample = {int("123456789"): None}
_HELD_BY_MAP = _references(list(_sample))[0]  # what it says of an integer that only a dictionary holds


class Handles:
    """The handles of one adapter. A handle is an int: the core's, or negative while the submission is
    deferred.

    A handle that the program has dropped without waiting is known by its reference count: only the map of
    this class still holds the integer. Such entries are swept out when the map has doubled, so they are
    never many, and submitting costs no more than a comparison.
    """

    def __init__(self) -> None:
        self._handle_map: dict[int, Entry] = {}
        self._deferred = DeferredSubmitter()
        self._watch = CompletionWatch()
        self._sweep_above = _FEWEST_TO_SWEEP

    def start(
        self,
        kind: int,
        name: str | None,
        placements: list[Placement[Any]],
        grouped: bool = False,
        op: int = Sum,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root: int = 0,
        process_set: int = 0,
        splits: Sequence[int] | None = None,
        finish: Finish | None = None,
    ) -> int:
        """Submits one operation over ``placements`` and returns its handle. An empty group is complete at
        once. ``process_set`` is the number of one that this rank is part of. ``finish`` makes the result of
        ``placements`` and the core's outputs, where it is not simply what the placements make of them.
        """
        finish = finish or (_finish_all if grouped else _finish_one)
        if not placements:
            return self._keep(self._deferred.new_handle(), finish, placements)
        specs = [placement.spec for placement in placements]
        check_types(op, [spec[2] for spec in specs])
        more = {} if splits is None else {"splits": splits}

        def submit() -> int:
            return _core.submit(kind, name, specs, op, prescale, postscale, root, process_set, **more)

        ready = [placement.ready for placement in placements if placement.ready is not None]
        if ready and name is not None:
            return self._keep(self._deferred.submit(ready, submit), finish, placements)
        for wait in ready:
            wait()
        return self._keep(submit(), finish, placements)

    def _keep(self, handle: int, finish: Finish | None, kept: Any) -> int:
        handles = self._handle_map
        handles[handle] = (finish, kept)
        if len(handles) > self._sweep_above:
            self.sweep()
        return handle

    def poll(self, handle: int) -> bool:
        """Whether ``synchronize(handle)`` would return at once."""
        return _core.poll(handle) if handle >= 0 else self._deferred.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Waits for an asynchronous operation and returns its result: a tensor, a list for a grouped
        operation, (tensor, received splits) for an alltoall.

        Raises TensorMismatchError when the ranks disagree about it, HorovodInternalError when a rank or the
        engine is gone. None for a handle that is unknown or was waited for.
        """
        entry = self._handle_map.get(handle)
        if entry is None:
            return None
        try:
            outputs = _core.wait(handle) if handle >= 0 else self._wait_deferred(handle, None)
        except BaseException as error:
            self._failed(handle, error)
            raise
        self._handle_map.pop(handle, None)  # a shutdown in another thread may have cleared the map
        finish, kept = entry
        return kept if finish is None else finish(kept, outputs)

    def wait(self, handle: int, timeout: float | None = None) -> Any:
        """As ``synchronize``, but raises TimeoutError after ``timeout`` seconds (None: no limit). The handle
        then stays valid, and the tensors stay in use.
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
        self._handle_map.pop(handle, None)
        finish, kept = entry
        return kept if finish is None else finish(kept, outputs)

    async def wait_async(self, handle: int) -> Any:
        """As ``synchronize``, to be awaited: ``result = await hvd.wait_async(handle)``. The event loop goes
        on meanwhile; cancelling leaves the handle valid.
        """
        if handle in self._handle_map and not self.poll(handle):
            await self._watch.until(lambda: self.poll(handle))
            if handle not in self._handle_map:
                raise HorovodInternalError(
                    "Horovod has been shut down, or another task has waited for the operation."
                )
        return self.synchronize(handle)

    def sweep(self) -> None:
        """Forgets the operations that are complete and whose handles the program no longer holds."""
        handles = list(self._handle_map)
        for handle, references in zip(handles, _references(handles), strict=True):
            if references > _HELD_BY_MAP + self._deferred.defers(handle) or not self.poll(handle):
                continue
            with contextlib.suppress(Exception):  # nobody is left to be told
                self.wait(handle, 0.0)
        self._sweep_above = max(_FEWEST_TO_SWEEP, 2 * len(self._handle_map))

    def reset(self) -> None:
        """After shutdown: forgets all handles. Waiting for one of them returns None from then on."""
        self._deferred.stop()
        self._handle_map.clear()
        self._watch.stop()

    def reset_in_child(self) -> None:
        """After fork: the operations of the parent are not the child's."""
        self._deferred.forget()
        self._handle_map.clear()
        self._watch.forget()

    def _failed(self, handle: int, error: BaseException) -> None:
        """Forgets the handle, unless its operation goes on: then the wait was ended by its limit, or by a
        signal handler that raised, and the core still uses the tensor.
        """
        if not isinstance(error, TimeoutError) and self.poll(handle):
            self._handle_map.pop(handle, None)
            self._deferred.drop(handle)

    def _wait_deferred(self, handle: int, timeout: float | None) -> list[_core.Output] | None:
        limit = None if timeout is None else time.monotonic() + timeout
        core_handle = self._deferred.resolve(handle, timeout)
        rest = None if limit is None else max(0.0, limit - time.monotonic())
        outputs = None if core_handle is None else _core.wait(core_handle, rest)
        self._deferred.drop(handle)
        return outputs


def check_types(op: int, dtypes: Iterable[int]) -> None:
    """Raises ValueError for a reduction that one of the types does not have."""
    if op == Average and any(dtype == _BOOL for dtype in dtypes):
        raise ValueError(
            "A tensor of bool has no average; use op=hvd.Sum, Min, Max or Product, or convert it."
        )
    if op == Adasum and any(dtype not in FLOATING for dtype in dtypes):
        raise ValueError("Adasum is defined for floating-point tensors only; use op=hvd.Sum or hvd.Average.")
