"""Operations in flight: what each handle keeps alive, and what becomes of it when the operation is
complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod import _core
from horovod.common.deferred import DeferredSubmitter
from horovod.common.placement import Placement
from horovod.common.reduce_ops import Average, Sum

_BOOL = _core.DTYPES["bool"]

# (how to make the result, or None when it is `kept` itself; what must stay alive meanwhile)
Entry = tuple[Callable[[Any, "list[_core.Output] | None"], Any] | None, Any]


def first_of(kept: Sequence[Any], outputs: list[_core.Output] | None) -> Any:
    """Finishes an operation that keeps (result, input)."""
    return kept[0]


def _finish_one(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> Any:
    return placements[0].finish(None if outputs is None else outputs[0])


def _finish_all(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> list[Any]:
    given: Sequence[_core.Output | None] = [None] * len(placements) if outputs is None else outputs
    return [placement.finish(output) for placement, output in zip(placements, given, strict=True)]


class Handles:
    """The handles of one adapter. A handle is an int: the core's, or negative while the submission is
    deferred.
    """

    def __init__(self) -> None:
        self._handle_map: dict[int, Entry] = {}
        self._deferred = DeferredSubmitter()

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
    ) -> int:
        """Submits one operation over ``placements`` and returns its handle. An empty group is complete at
        once.
        """
        if not placements:
            handle = self._deferred.new_handle()
            self._handle_map[handle] = (_finish_all, placements)
            return handle
        specs = [placement.spec for placement in placements]
        if op == Average and any(spec[2] == _BOOL for spec in specs):
            raise ValueError(
                "A tensor of bool has no average; use op=hvd.Sum, Min, Max or Product, or convert it."
            )

        def submit() -> int:
            return _core.submit(kind, name, specs, op, prescale, postscale, root)

        ready = [placement.ready for placement in placements if placement.ready is not None]
        if ready and name is not None:
            handle = self._deferred.submit(ready, submit)
        else:
            for wait in ready:
                wait()
            handle = submit()
        self._handle_map[handle] = (_finish_all if grouped else _finish_one, placements)
        return handle

    def poll(self, handle: int) -> bool:
        """Whether ``synchronize(handle)`` would return at once."""
        return _core.poll(handle) if handle >= 0 else self._deferred.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Waits for an asynchronous operation and returns its result: a tensor, or a list for a grouped
        operation.

        Raises TensorMismatchError when the ranks disagree about it, HorovodInternalError when a rank or the
        engine is gone. None for a handle that is unknown or was waited for.
        """
        entry = self._handle_map.get(handle)
        if entry is None:
            return None
        try:
            outputs = _core.wait(handle) if handle >= 0 else self._wait_deferred(handle)
        except BaseException:
            if self.poll(handle):  # otherwise a signal handler raised, and the core still uses the tensor
                self._handle_map.pop(handle, None)
                self._deferred.drop(handle)
            raise
        self._handle_map.pop(handle, None)  # a shutdown in another thread may have cleared the map
        finish, kept = entry
        return kept if finish is None else finish(kept, outputs)

    def reset(self) -> None:
        """After shutdown: forgets all handles. Waiting for one of them returns None from then on."""
        self._deferred.stop()
        self._handle_map.clear()

    def reset_in_child(self) -> None:
        """After fork: the operations of the parent are not the child's."""
        self._deferred.forget()
        self._handle_map.clear()

    def _wait_deferred(self, handle: int) -> list[_core.Output] | None:
        core_handle = self._deferred.resolve(handle)
        outputs = None if core_handle is None else _core.wait(core_handle)
        self._deferred.drop(handle)
        return outputs
