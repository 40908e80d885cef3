"""Allreduce and grouped allreduce in their public forms; the conventions are explained in ``collectives``.

The asynchronous allreduce is called a thousand times per training step, so its usual case (contiguous CPU
tensors) is written out, and tests one thing: whether ``describe`` could describe the tensor. Everything else
goes by a Placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common.collective.compression import (
    AnyCompressor,
    NoneCompressor,
    Packed,
    is_stateful,
    resolve_compression,
)
from horovod.common.collective.exchange import Exchange, reduce_once
from horovod.common.collective.handles import Submission, bytes_of, check_types, first_of
from horovod.common.collective.tensor_glue import Purpose, Result, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Adasum, Average, resolve_op

_ALLREDUCE = _core.ALLREDUCE
# The reductions that every type has, or that the core refuses by type itself.
_PLAIN_OPS: dict[int | None, int] = {None: Average, **{op: op for op in OP_NAMES if op != Adasum}}


class Reductions(Submission[Tensor]):
    """The reducing operations of one adapter; the bound methods are the functions that users call."""

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
        """Starts to reduce ``tensor`` over all ranks into itself.

        Args:
            tensor: must be neither read nor written until it was waited for.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            A handle for ``poll``, ``synchronize`` and ``wait``.
        """
        plain = average is None and op in _PLAIN_OPS
        op = _PLAIN_OPS[op] if plain else self._other_op(op, average, (tensor,))
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self._start_one(
                tensor, Result.IN_PLACE, name, op, prescale_factor, postscale_factor, number
            )
        self._overwrites((tensor,))
        if len(self._dropped) > self._sweep_above:
            self.sweep()
        entry = (None, tensor, spec[4])
        return _core.submit_for(
            self._handle, entry, _ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor, 0, number
        )

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
        """Reduces ``tensor`` over all ranks into itself.

        Args:
            tensor: what to reduce and to overwrite.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            ``tensor``.
        """
        plain = average is None and op in _PLAIN_OPS
        op = _PLAIN_OPS[op] if plain else self._other_op(op, average, (tensor,))
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self.synchronize(
                self._start_one(tensor, Result.IN_PLACE, name, op, prescale_factor, postscale_factor, number)
            )
        self._overwrites((tensor,))
        _core.run(_ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor, 0, number, tensor)
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
        """Starts to reduce ``tensor`` over all ranks into a new tensor. Not differentiable.

        Args:
            tensor: must not be written until it was waited for.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            A handle for ``poll``, ``synchronize`` and ``wait``.
        """
        plain = average is None and op in _PLAIN_OPS
        op = _PLAIN_OPS[op] if plain else self._other_op(op, average, (tensor,))
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        spec = self._describe(tensor)
        if spec is None:
            return self._start_one(
                tensor, Result.LIKE_INPUT, name, op, prescale_factor, postscale_factor, number
            )
        output, address = self.glue.empty_like(tensor)
        spec = (spec[0], address, *spec[2:])  # as long as the input
        if len(self._dropped) > self._sweep_above:
            self.sweep()
        entry = (first_of, (output, tensor), spec[4])
        return _core.submit_for(
            self._handle, entry, _ALLREDUCE, name, (spec,), op, prescale_factor, postscale_factor, 0, number
        )

    def allreduce(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        compression: AnyCompressor | None = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Reduces ``tensor`` over all ranks into a new tensor. Differentiable: the gradient is an allreduce
        with the same arguments; for Max and Min it goes to the ranks that have the extreme, for Product it is
        that of a product.

        Args:
            tensor: of one shape and type on all ranks.
            average: the deprecated form of ``op``.
            name: identifies the operation on all ranks, which may then start it in any order.
            compression: how the tensor travels.
            op: Average (default), Sum, Min, Max, Product or, for floating-point tensors, Adasum.
            prescale_factor: multiplies every element before the reduction; equal on all ranks.
            postscale_factor: multiplies every element after it; equal on all ranks.
            process_set: the ranks that take part.

        Returns:
            The reduction, of the shape and type of ``tensor``.

        Raises:
            ValueError, TypeError: this caller did something wrong; nothing was sent.
            TensorMismatchError: the ranks disagree; the same on every rank.
            HorovodInternalError: a rank is gone.
        """
        op = resolve_op(op, average)
        number = check_process_set(process_set)
        compressor = resolve_compression(compression)
        if is_stateful(compressor):
            factors = (prescale_factor, postscale_factor)
            return self._reduce_statefully(compressor, [tensor], [name], op, process_set, *factors)[0]
        sent, context = compressor.compress(tensor)
        if self.glue.records_gradient(sent):
            factors = (prescale_factor, postscale_factor)
            reduced = self.recorded("allreduce", [sent], None, name, op, *factors, process_set)[0]
        else:
            reduced = self._reduce_now(sent, name, op, prescale_factor, postscale_factor, number)
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
        """Starts to reduce ``tensors`` as one operation, all or none, each into itself.

        Args:
            tensors: all on one device.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            One handle, for which ``synchronize`` returns the list.
        """
        tensors = list(tensors)
        op = self._other_op(op, average, tensors)
        number = check_process_set(process_set)
        specs = [spec for tensor in tensors if (spec := self._describe(tensor)) is not None]
        if not specs or len(specs) < len(tensors):
            purpose = Purpose(_ALLREDUCE, op, prescale_factor, postscale_factor)
            placements = self.place_group(tensors, Result.IN_PLACE, purpose)
            return self.start(purpose, name, placements, True, process_set=number)
        self._overwrites(tensors)
        if len(self._dropped) > self._sweep_above:
            self.sweep()
        entry = (None, tensors, bytes_of(specs))
        return _core.submit_for(
            self._handle, entry, _ALLREDUCE, name, specs, op, prescale_factor, postscale_factor, 0, number
        )

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
        """Reduces ``tensors`` as one operation, all or none, each into itself.

        Args:
            tensors: all on one device.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            The list of them.
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
        """Starts to reduce ``tensors`` as one operation, all or none, into new tensors. Not differentiable.

        Args:
            tensors: all on one device.
            average, name, op, prescale_factor, postscale_factor, process_set: as for ``allreduce``.

        Returns:
            One handle, for which ``synchronize`` returns the list.
        """
        op = resolve_op(op, average)
        number = check_process_set(process_set)
        purpose = Purpose(_ALLREDUCE, op, prescale_factor, postscale_factor)
        placements = self.place_group(list(tensors), Result.LIKE_INPUT, purpose)
        return self.start(purpose, name, placements, True, process_set=number)

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
        """Reduces ``tensors`` as one operation, all or none, into new tensors. Differentiable.

        Args:
            tensors: all on one device.
            average, name, compression, op, prescale_factor, postscale_factor, process_set: as for
                ``allreduce``.

        Returns:
            The list of reductions.
        """
        op = resolve_op(op, average)
        check_process_set(process_set)
        compressor = resolve_compression(compression)
        factors = (prescale_factor, postscale_factor)
        if is_stateful(compressor):
            tensors = list(tensors)
            names = [None if name is None else f"{name}_{i}of{len(tensors)}" for i in range(len(tensors))]
            return self._reduce_statefully(compressor, tensors, names, op, process_set, *factors)
        packed = Packed(compressor, tensors)
        arguments = (packed.tensors, None, name, op, *factors, process_set)
        if any(map(self.glue.records_gradient, packed.tensors)):
            return packed.unpacked(self.recorded("grouped_allreduce", *arguments))
        return packed.unpacked(self.synchronize(self.grouped_allreduce_async(*arguments)))

    def _reduce_now(
        self,
        tensor: Tensor,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: int,
    ) -> Tensor:
        """Reduces into a new tensor and waits. The engine knows from the start that somebody waits: it need
        not wake a thread of its own.
        """
        spec = self._describe(tensor) if op in _PLAIN_OPS else None
        if spec is None:
            return self.synchronize(
                self._start_one(tensor, Result.LIKE_INPUT, name, op, prescale, postscale, process_set)
            )
        output, address = self.glue.empty_like(tensor)
        spec = (spec[0], address, *spec[2:])  # as long as the input
        kept = (output, tensor)
        _core.run(_ALLREDUCE, name, (spec,), op, prescale, postscale, 0, process_set, kept)
        return output

    def _start_one(
        self,
        tensor: Tensor,
        result: Result,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: int,
    ) -> int:
        purpose = Purpose(_ALLREDUCE, op, prescale, postscale)
        placements = [self.glue.place(tensor, result, purpose)]
        return self.start(purpose, name, placements, process_set=process_set)

    def _other_op(self, op: int | None, average: bool | None, tensors: Sequence[Tensor]) -> int:
        """The reduction to run, when it needs a look at the arguments. Types that need ``place`` are checked
        by ``start``.
        """
        resolved = resolve_op(op, average)
        if resolved == Adasum:
            specs = [self._describe(tensor) for tensor in tensors]
            check_types(resolved, [spec[2] for spec in specs if spec is not None])
        return resolved

    def _reduce_statefully(
        self,
        compressor: Any,
        tensors: Sequence[Tensor],
        names: Sequence[str | None],
        op: int,
        process_set: ProcessSet,
        prescale: float,
        postscale: float,
    ) -> list[Tensor]:
        if any(self.glue.records_gradient(tensor) for tensor in tensors):
            raise ValueError(
                f"An allreduce compressed by {compressor.__name__} has no gradient; detach the tensor, or "
                "use hvd.Compression.none, fp16 or bf16."
            )
        exchange = Exchange(self, op, process_set)
        return reduce_once(compressor, tensors, names, exchange, prescale, postscale, self.glue.scaled)
