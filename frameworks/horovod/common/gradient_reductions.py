"""Reductions of gradients in place, as an optimizer starts them hundreds of times a step: with everything
resolved beforehand, and able to tell whether the program has changed a result that it did not yet wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from horovod import _core
from horovod.common.grouped_reductions import GroupedReductions
from horovod.common.handles import bytes_of
from horovod.common.placement import Spec, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.tensor_glue import Result

_ALLREDUCE = _core.ALLREDUCE


class GradientReductions(GroupedReductions[Tensor]):
    """The handles are plain numbers: the optimizer waits for each of them, or resets all."""

    def reduce_gradient_(
        self, gradient: Tensor, name: str, op: int, prescale: float, postscale: float, process_set: ProcessSet
    ) -> int:
        """Starts to reduce ``gradient`` over all ranks into itself; returns a handle. ``op``: any but None
        and Adasum.
        """
        spec = self._describe(gradient)
        if spec is None:
            number = check_process_set(process_set)
            return self._start_one(gradient, Result.IN_PLACE, name, op, prescale, postscale, number)
        return self.reduce_described_(gradient, spec, name, op, prescale, postscale, process_set)

    def reduce_described_(
        self,
        gradient: Tensor,
        spec: Spec,
        name: str,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> int:
        """As ``reduce_gradient_``, of one whose description is at hand."""
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        handle = _core.submit(_ALLREDUCE, name, (spec,), op, prescale, postscale, 0, number, None, None, 1)
        self._handle_map[handle] = (None, gradient, spec[4])
        return handle

    def reduce_gradients_(
        self,
        gradients: Sequence[Tensor],
        name: str,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> int:
        """As ``reduce_gradient_``, several as one operation."""
        specs = [spec for gradient in gradients if (spec := self._describe(gradient)) is not None]
        if len(specs) < len(gradients):
            return self.grouped_allreduce_async_(gradients, None, name, op, prescale, postscale, process_set)
        number = check_process_set(process_set)
        handle = _core.submit(_ALLREDUCE, name, specs, op, prescale, postscale, 0, number, None, None, 1)
        self._handle_map[handle] = (None, gradients, bytes_of(specs))
        return handle

    def changed(self, handle: int) -> bool:
        """Whether the program has written to gradients after they were reduced, as far as a sample of their
        elements tells. False while they are being reduced.
        """
        return handle >= 0 and _core.changed(handle)

    def finish_gradient(self, handle: int) -> bool:
        """Waits for what ``reduce_gradient_`` has started, as ``synchronize``; returns what ``changed`` said
        before.
        """
        changed = handle >= 0 and _core.changed(handle)
        entry = self._handle_map.get(handle)
        if entry is None or entry[0] is not None or handle < 0:
            self.synchronize(handle)
            return changed
        try:
            _core.wait(handle)
        except BaseException as error:
            self._failed(handle, error)
            raise
        self._handle_map.pop(handle, None)
        return changed
