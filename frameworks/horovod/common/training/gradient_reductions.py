"""Reductions of gradients in place, as an optimizer starts them hundreds of times a step: with everything
resolved beforehand, and able to tell whether the program has changed a result that it did not yet wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

from horovod import _core
from horovod.common.collective.handles import Entry, bytes_of
from horovod.common.collective.reductions import Reductions
from horovod.common.collective.tensor_glue import Purpose, Result, Spec, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set

_ALLREDUCE = _core.ALLREDUCE


class GradientReduction(NamedTuple):
    """How gradients are reduced. ``op``: any but Adasum."""

    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet


class GradientReductions(Generic[Tensor]):
    """The reductions of gradients by the operations of one adapter."""

    def __init__(self, ops: Reductions[Tensor]) -> None:
        self._ops = ops
        self._describe = ops.glue.describe
        self._handle_map = ops._handle_map

    def start(self, gradients: Sequence[Tensor], name: str, how: GradientReduction) -> int:
        """Starts to reduce ``gradients`` over all ranks into themselves, as one operation.

        Args:
            gradients: what is reduced.
            name: of the operation.
            how: the reduction.

        Returns:
            A handle, which is a plain number: the optimizer waits for each of them, or resets all.
        """
        specs = [spec for gradient in gradients if (spec := self._describe(gradient)) is not None]
        if len(specs) == len(gradients):
            return self.start_described(specs, gradients, bytes_of(specs), name, how)
        purpose = Purpose(_ALLREDUCE, how.op, how.prescale, how.postscale, of_optimizer=True)
        placements = self._ops.place_group(list(gradients), Result.IN_PLACE, purpose)
        return self._ops.start(purpose, name, placements, process_set=check_process_set(how.process_set))

    def start_described(
        self, specs: Sequence[Spec], gradients: Any, nbytes: int, name: str, how: GradientReduction
    ) -> int:
        """As ``start``, of ``gradients`` whose descriptions are at hand, and their bytes. The hot path."""
        op, prescale, postscale, process_set = how
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        entry: Entry = (None, gradients, nbytes)
        try:
            return _core.submit_for(
                self._handle_map,
                entry,
                _ALLREDUCE,
                name,
                specs,
                op,
                prescale,
                postscale,
                0,
                number,
                None,
                None,
                1,
            )
        except BaseException:
            self._lose(entry)
            raise

    def changed(self, handle: int) -> bool:
        """Whether the program has written to gradients after they were reduced, as far as a sample of their
        elements tells. False while they are being reduced.
        """
        return handle >= 0 and _core.changed(handle)

    def finish(self, handle: int) -> None:
        """Waits for what ``start`` has started, as ``synchronize``."""
        entry = self._handle_map.get(handle)
        if entry is None or entry[0] is not None or handle < 0:
            self._ops.synchronize(handle)
            return
        try:
            _core.wait(handle)
        except BaseException as error:
            self._ops._failed(handle, error)
            raise
        _core.forget(handle, self._handle_map)

    def _lose(self, entry: Entry) -> None:
        """A signal handler has raised when the operation had perhaps begun: nobody knows its number."""
        for handle in [handle for handle, kept in list(self._handle_map.items()) if kept is entry]:
            self._ops.drop(handle)
