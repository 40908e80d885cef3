"""Allreduce and grouped allreduce in their public forms; the conventions are explained in ``collectives``.

The asynchronous allreduce is called a thousand times per training step, so its usual case (contiguous CPU
tensors) is written out, and tests one thing: whether ``describe`` could describe the tensor. Everything else
goes by a Placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from horovod import _core
from horovod.common.compression import Compressor, NoneCompressor, resolve_compression
from horovod.common.handles import Handles, first_of
from horovod.common.placement import Placement, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import AVAILABLE, Average, resolve_op
from horovod.common.tensor_glue import Result, TensorGlue

_ALLREDUCE = _core.ALLREDUCE
_PLAIN_OPS: dict[int | None, int] = {None: Average, **{op: op for op in AVAILABLE}}


class Reductions(Handles, Generic[Tensor]):
    """The reducing operations of one adapter; the bound methods are the functions that users call."""

    def __init__(self, glue: TensorGlue[Tensor]) -> None:
        super().__init__()
        self.glue = glue
        self._describe = glue.describe

    def allreduce_async_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to reduce ``tensor`` over all ranks into itself; returns a handle for ``poll`` and
        ``synchronize``.

        The tensor must not be read or written until then. Arguments as for ``allreduce``.
        """
        op = _PLAIN_OPS[op] if average is None and op in _PLAIN_OPS else resolve_op(op, average)
        if process_set is not global_process_set:
            check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self._start_one(tensor, Result.IN_PLACE, name, op, prescale_factor, postscale_factor)
        handle = _core.submit(_ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor)
        self._handle_map[handle] = (None, tensor)
        return handle

    def allreduce_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Reduces ``tensor`` over all ranks into itself and returns it. Arguments as for ``allreduce``."""
        op = _PLAIN_OPS[op] if average is None and op in _PLAIN_OPS else resolve_op(op, average)
        if process_set is not global_process_set:
            check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self.synchronize(
                self._start_one(tensor, Result.IN_PLACE, name, op, prescale_factor, postscale_factor)
            )
        _core.run(_ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor, 0, 0, tensor)
        return tensor

    def allreduce_async(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to reduce ``tensor`` over all ranks into a new tensor; returns a handle. Not differentiable.

        Arguments as for ``allreduce``.
        """
        op = _PLAIN_OPS[op] if average is None and op in _PLAIN_OPS else resolve_op(op, average)
        if process_set is not global_process_set:
            check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self._start_one(tensor, Result.LIKE_INPUT, name, op, prescale_factor, postscale_factor)
        output, address = self.glue.empty_like(tensor)
        spec = (spec[0], address, spec[2], spec[3])
        handle = _core.submit(_ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor)
        self._handle_map[handle] = (first_of, (output, tensor))
        return handle

    def allreduce(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Reduces ``tensor`` over all ranks into a new tensor of its shape and type. Differentiable.

        ``op``: Average (default), Sum, Min, Max or Product; ``average`` is its deprecated form. Every element
        is multiplied by ``prescale_factor`` before and by ``postscale_factor`` after the reduction; both must
        be equal on all ranks. ``compression``: how the tensor travels. The gradient is an allreduce with the
        same arguments.
        """
        op = resolve_op(op, average)
        check_process_set(process_set)
        compressor = resolve_compression(compression)
        sent, context = compressor.compress(tensor)
        if self.glue.records_gradient(sent):
            reduced = self.glue.allreduce_recorded(sent, name, op, prescale_factor, postscale_factor)
        else:
            reduced = self.synchronize(
                self.allreduce_async(sent, None, name, op, prescale_factor, postscale_factor, process_set)
            )
        return compressor.decompress(reduced, context)

    def grouped_allreduce_async_(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to reduce ``tensors`` as one operation, all or none, each into itself; returns one handle.

        ``synchronize`` returns the list. All tensors must be on one device. Arguments as for ``allreduce``.
        """
        op = resolve_op(op, average)
        check_process_set(process_set)
        tensors = list(tensors)
        specs = [spec for tensor in tensors if (spec := self._describe(tensor)) is not None]
        if not specs or len(specs) < len(tensors):
            return self._start_group(tensors, Result.IN_PLACE, name, op, prescale_factor, postscale_factor)
        handle = _core.submit(_ALLREDUCE, name, specs, op, prescale_factor, postscale_factor)
        self._handle_map[handle] = (None, tensors)
        return handle

    def grouped_allreduce_(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """Reduces ``tensors`` as one operation, all or none, each into itself. Arguments as for
        ``allreduce``.
        """
        return self.synchronize(
            self.grouped_allreduce_async_(
                tensors, average, name, op, prescale_factor, postscale_factor, process_set
            )
        )

    def grouped_allreduce_async(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to reduce ``tensors`` as one operation, all or none, into new tensors; returns one handle.

        ``synchronize`` returns the list. Not differentiable. Arguments as for ``allreduce``.
        """
        op = resolve_op(op, average)
        check_process_set(process_set)
        return self._start_group(
            list(tensors), Result.LIKE_INPUT, name, op, prescale_factor, postscale_factor
        )

    def grouped_allreduce(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """Reduces ``tensors`` as one operation, all or none, into new tensors. Differentiable. See
        ``allreduce``.
        """
        op = resolve_op(op, average)
        check_process_set(process_set)
        compressor = resolve_compression(compression)
        compressed = [compressor.compress(tensor) for tensor in tensors]
        sent = [tensor for tensor, _ in compressed]
        if any(self.glue.records_gradient(tensor) for tensor in sent):
            factors = (prescale_factor, postscale_factor)
            reduced = self.glue.grouped_allreduce_recorded(sent, name, op, *factors)
        else:
            reduced = self.synchronize(
                self._start_group(sent, Result.LIKE_INPUT, name, op, prescale_factor, postscale_factor)
            )
        contexts = [context for _, context in compressed]
        return [compressor.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts, strict=True)]

    def _start_one(
        self, tensor: Tensor, result: Result, name: str | None, op: int, prescale: float, postscale: float
    ) -> int:
        placements = [self.glue.place(tensor, result)]
        return self.start(_ALLREDUCE, name, placements, False, op, prescale, postscale)

    def _start_group(
        self,
        tensors: list[Tensor],
        result: Result,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
    ) -> int:
        placements: list[Placement[Tensor]] = [self.glue.place(tensor, result) for tensor in tensors]
        devices = {self.glue.device(tensor) for tensor in tensors}
        if len(devices) > 1:
            found = ", ".join(sorted(str(device) for device in devices))
            raise ValueError(f"The tensors of a group must be on one device, found {found}.")
        return self.start(_ALLREDUCE, name, placements, True, op, prescale, postscale)
