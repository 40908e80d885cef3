"""Grouped allreduce: several tensors as one operation, all or none. The conventions are explained in
``collectives``.
"""

from __future__ import annotations

from collections.abc import Iterable

from horovod import _core
from horovod.common.compression import AnyCompressor, NoneCompressor, is_stateful, resolve_compression
from horovod.common.handles import bytes_of
from horovod.common.placement import Placement, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import resolve_op
from horovod.common.reductions import Reductions
from horovod.common.tensor_glue import Result


class GroupedReductions(Reductions[Tensor]):
    """The grouped reducing operations of one adapter; the bound methods are the functions that users call."""

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
        tensors = list(tensors)
        op = self._other_op(op, average, tensors)
        number = check_process_set(process_set)
        specs = [spec for tensor in tensors if (spec := self._describe(tensor)) is not None]
        if not specs or len(specs) < len(tensors):
            placements = self.place_group(tensors, Result.IN_PLACE)
            factors = (prescale_factor, postscale_factor)
            return self.start(_core.ALLREDUCE, name, placements, True, op, *factors, process_set=number)
        handle = _core.submit(_core.ALLREDUCE, name, specs, op, prescale_factor, postscale_factor, 0, number)
        return self._keep(handle, None, tensors, bytes_of(specs))

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
        number = check_process_set(process_set)
        placements = self.place_group(list(tensors), Result.LIKE_INPUT)
        factors = (prescale_factor, postscale_factor)
        return self.start(_core.ALLREDUCE, name, placements, True, op, *factors, process_set=number)

    def grouped_allreduce(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        compression: AnyCompressor | None = NoneCompressor,
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
        factors = (prescale_factor, postscale_factor)
        if is_stateful(compressor):
            tensors = list(tensors)
            names = [None if name is None else f"{name}_{i}of{len(tensors)}" for i in range(len(tensors))]
            return self._reduce_statefully(compressor, tensors, names, op, process_set, *factors)
        compressed = [compressor.compress(tensor) for tensor in tensors]
        sent = [tensor for tensor, _ in compressed]
        if any(self.glue.records_gradient(tensor) for tensor in sent):
            reduced = self.recorded("grouped_allreduce", sent, None, name, op, *factors, process_set)
        else:
            reduced = self.synchronize(
                self.grouped_allreduce_async(sent, None, name, op, *factors, process_set)
            )
        contexts = [context for _, context in compressed]
        return [compressor.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts, strict=True)]

    def place_group(self, tensors: list[Tensor], result: Result) -> list[Placement[Tensor]]:
        """The placements of tensors that travel as one operation, which must be on one device."""
        placements = [self.glue.place(tensor, result) for tensor in tensors]
        devices = {self.glue.device(tensor) for tensor in tensors}
        if len(devices) > 1:
            found = ", ".join(sorted(str(device) for device in devices))
            raise ValueError(f"The tensors of a group must be on one device, found {found}.")
        return placements
