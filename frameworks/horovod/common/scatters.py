"""Reducescatter and grouped reducescatter in their public forms; the conventions are explained in
``collectives``.
"""

from __future__ import annotations

from collections.abc import Iterable

from horovod import _core
from horovod.common.compression import Compressor, NoneCompressor, resolve_plain_compression
from horovod.common.gathers import Gathers
from horovod.common.placement import Placement, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Adasum, Average, resolve_op
from horovod.common.tensor_glue import Result


class Scatters(Gathers[Tensor]):
    """The scattering operations of one adapter; the bound methods are the functions that users call."""

    def reducescatter_async(
        self,
        tensor: Tensor,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Starts a ``reducescatter``; returns a handle. Not differentiable."""
        op, number = scatter_op(op), check_process_set(process_set)
        placements = [self.glue.place(tensor, Result.FROM_CORE)]
        return self._start_scatter(placements, False, name, op, number, prescale_factor, postscale_factor)

    def reducescatter(
        self,
        tensor: Tensor,
        name: str | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Tensor:
        """Reduces ``tensor`` over all ranks and returns this rank's rows of the result.

        The first dimension d is dealt out in rank order as evenly as possible: the first d % size ranks get
        one row more. ``op``: Average, Sum, Min, Max or Product. Every element is multiplied by
        ``prescale_factor`` before and by ``postscale_factor`` after the reduction. ``compression``: how the
        tensor travels.

        Differentiable for Average and Sum. For Average the gradient is the allgather of the ranks' gradients,
        times both factors: what an input shared by all ranks has as its gradient, so that averaging the
        gradients of parameters afterwards is right. For Sum it is that times the size of the set.
        """
        op = scatter_op(op)
        check_process_set(process_set)
        compressor = resolve_plain_compression(compression, "reducescatter")
        sent, context = compressor.compress(tensor)
        arguments = (name, op, process_set, prescale_factor, postscale_factor)
        if self.glue.records_gradient(sent):
            reduced = self.recorded("reducescatter", [sent], *arguments)[0]
        else:
            reduced = self.synchronize(self.reducescatter_async(sent, *arguments))
        return compressor.decompress(reduced, context)

    def grouped_reducescatter_async(
        self,
        tensors: Iterable[Tensor],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Starts a reducescatter of each of ``tensors`` as one operation, all or none; returns one handle.

        ``synchronize`` returns the list. All tensors must be on one device. Not differentiable.
        """
        op, number = scatter_op(op), check_process_set(process_set)
        placements = self.place_group(list(tensors), Result.FROM_CORE)
        return self._start_scatter(placements, True, name, op, number, prescale_factor, postscale_factor)

    def grouped_reducescatter(
        self,
        tensors: Iterable[Tensor],
        name: str | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[Tensor]:
        """A reducescatter of each of ``tensors`` as one operation, all or none. Differentiable. See
        ``reducescatter``.
        """
        op = scatter_op(op)
        check_process_set(process_set)
        compressor = resolve_plain_compression(compression, "grouped_reducescatter")
        compressed = [compressor.compress(tensor) for tensor in tensors]
        sent = [tensor for tensor, _ in compressed]
        arguments = (name, op, process_set, prescale_factor, postscale_factor)
        if any(self.glue.records_gradient(tensor) for tensor in sent):
            reduced = self.recorded("grouped_reducescatter", sent, *arguments)
        else:
            reduced = self.synchronize(self.grouped_reducescatter_async(sent, *arguments))
        contexts = [context for _, context in compressed]
        return [compressor.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts, strict=True)]

    def _start_scatter(
        self,
        placements: list[Placement[Tensor]],
        grouped: bool,
        name: str | None,
        op: int,
        process_set: int,
        prescale: float,
        postscale: float,
    ) -> int:
        if any(len(placement.spec[3]) == 0 for placement in placements):
            raise ValueError(
                "reducescatter deals out the first dimension and a scalar has none; reshape it to (1,)."
            )
        factors = (prescale, postscale)
        return self.start(
            _core.REDUCESCATTER, name, placements, grouped, op, *factors, process_set=process_set
        )


def scatter_op(op: int | None) -> int:
    """The reduction to run. NotImplementedError for Adasum, ValueError for what is no reduction."""
    resolved = resolve_op(op)
    if resolved == Adasum:
        raise NotImplementedError(
            "reducescatter has no Adasum; use op=hvd.Average, Sum, Min, Max or Product."
        )
    return resolved
