"""Operations in which every rank has its own rows of the result or of the input: allgather, alltoall and
reducescatter. The conventions are explained in ``collectives``.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common.collective.compression import (
    Compressor,
    NoneCompressor,
    Packed,
    resolve_plain_compression,
)
from horovod.common.collective.handles import Submission
from horovod.common.collective.tensor_glue import Placement, Purpose, Result, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import Adasum, Average, Sum, resolve_op


class Gathers(Submission[Tensor]):
    """The operations of one adapter on rows; the bound methods are the functions that users call."""

    def allgather_async(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts an ``allgather``. Not differentiable.

        Args:
            tensor, name, process_set: as for ``allgather``.

        Returns:
            A handle for ``synchronize``.
        """
        number = check_process_set(process_set)
        return self._start_gather([tensor], False, name, number)

    def allgather(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """Concatenates the tensors of all ranks, in rank order, along the first dimension. Differentiable:
        the gradient is the average over all ranks, of which each takes the rows that it contributed.

        Args:
            tensor: its first dimension may differ between ranks, and be 0; the others and the type are equal.
            name: identifies the operation on all ranks, which may then start it in any order.
            process_set: the ranks that take part.

        Returns:
            The rows of all ranks.

        Raises:
            ValueError, TypeError: this caller did something wrong; nothing was sent.
            TensorMismatchError: the ranks disagree; the same on every rank.
            HorovodInternalError: a rank is gone.
        """
        if self.glue.records_gradient(tensor):
            check_process_set(process_set)
            return self.recorded("allgather", [tensor], name, process_set)[0]
        return self.synchronize(self.allgather_async(tensor, name, process_set))

    def grouped_allgather_async(
        self,
        tensors: Iterable[Tensor],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts an allgather of each of ``tensors`` as one operation, all or none. Not differentiable.

        Args:
            tensors: all on one device.
            name, process_set: as for ``allgather``.

        Returns:
            One handle, for which ``synchronize`` returns the list.
        """
        number = check_process_set(process_set)
        return self._start_gather(list(tensors), True, name, number)

    def gather_to_reduce_async(
        self, tensors: Sequence[Tensor], name: str | None, op: int, process_set: ProcessSet
    ) -> int:
        """As ``allgather_async`` (of several ``tensors``: the grouped one), for a caller who will reduce the
        rows by ``op``: another one on another rank is a TensorMismatchError.
        """
        number = check_process_set(process_set)
        return self._start_gather(list(tensors), len(tensors) > 1, name, number, op)

    def grouped_allgather(
        self,
        tensors: Iterable[Tensor],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """An allgather of each of ``tensors`` as one operation, all or none. Differentiable.

        Args:
            tensors: all on one device.
            name, process_set: as for ``allgather``.

        Returns:
            For each tensor, the rows of all ranks.
        """
        tensors = list(tensors)
        if any(self.glue.records_gradient(tensor) for tensor in tensors):
            check_process_set(process_set)
            return self.recorded("grouped_allgather", tensors, name, process_set)
        return self.synchronize(self.grouped_allgather_async(tensors, name, process_set))

    def alltoall_async(
        self,
        tensor: Tensor,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts an ``alltoall``. Not differentiable.

        Args:
            tensor, splits, name, process_set: as for ``alltoall``.

        Returns:
            A handle, for which ``synchronize`` returns (tensor, received splits), also when no ``splits`` are
            given.
        """
        number = check_process_set(process_set)
        purpose = Purpose(_core.ALLTOALL)
        placement = self.glue.place(tensor, Result.FROM_CORE, purpose)
        _check_dimensions([placement], "alltoall distributes")
        counts = self._splits_of(splits, placement.spec[3][0], process_set)

        def finish(_: Any, outputs: list[_core.Output] | None) -> tuple[Tensor, Tensor]:
            received, sources = outputs or (None, None)
            rows = list(memoryview(sources.tobytes()).cast("q")) if sources is not None else []
            return placement.finish(received), self.glue.integer_tensor(rows, splits)

        return self.start(purpose, name, [placement], process_set=number, splits=counts, finish=finish)

    def alltoall(
        self,
        tensor: Tensor,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Sends each rank some rows of ``tensor``. Differentiable: each rank gets back the gradients of the
        rows that it sent; rows that were not sent have gradient 0.

        Args:
            tensor: all dimensions but the first, and the type, are equal on all ranks.
            splits: integers of any type, a list or a tensor: how many rows go to each rank of the process
                set, in its order. Rows beyond their sum are not sent. None: all get equally many.
            name: identifies the operation on all ranks, which may then start it in any order.
            process_set: the ranks that take part.

        Returns:
            The rows received, in the order of the ranks; with ``splits``, (these, how many came from each
            rank).

        Raises:
            ValueError: not as many splits as ranks, a negative one, or more rows than there are; without
                splits, a first dimension that the ranks cannot share equally. Nothing was sent.
            TensorMismatchError: the ranks disagree; the same on every rank.
            HorovodInternalError: a rank is gone.
        """
        if self.glue.records_gradient(tensor):
            check_process_set(process_set)
            results = self.recorded("alltoall", [tensor], splits, name, process_set)
            return results[0] if splits is None else tuple(results)
        received, sources = self.synchronize(self.alltoall_async(tensor, splits, name, process_set))
        return received if splits is None else (received, sources)

    def reducescatter_async(
        self,
        tensor: Tensor,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Starts a ``reducescatter``. Not differentiable.

        Args:
            tensor, name, op, process_set, prescale_factor, postscale_factor: as for ``reducescatter``.

        Returns:
            A handle for ``synchronize``.
        """
        op, number = scatter_op(op), check_process_set(process_set)
        purpose = Purpose(_core.REDUCESCATTER, op, prescale_factor, postscale_factor)
        return self._start_scatter([tensor], False, name, purpose, number)

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
        """Reduces ``tensor`` over all ranks and gives each rank its rows of the result.

        The first dimension d is dealt out in rank order as evenly as possible: the first d % size ranks get
        one row more. Differentiable for Average and Sum. For Average the gradient is the allgather of the
        ranks' gradients, times both factors: what an input shared by all ranks has as its gradient, so that
        averaging the gradients of parameters afterwards is right. For Sum it is that times the size of the
        set.

        Args:
            tensor: of one shape and type on all ranks.
            name: identifies the operation on all ranks, which may then start it in any order.
            compression: how the tensor travels.
            op: Average, Sum, Min, Max or Product.
            process_set: the ranks that take part.
            prescale_factor: multiplies every element before the reduction; equal on all ranks.
            postscale_factor: multiplies every element after it; equal on all ranks.

        Returns:
            The rows of this rank.

        Raises:
            ValueError, TypeError: this caller did something wrong; nothing was sent.
            NotImplementedError: ``op`` is Adasum.
            TensorMismatchError: the ranks disagree; the same on every rank.
            HorovodInternalError: a rank is gone.
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
        """Starts a reducescatter of each of ``tensors`` as one operation, all or none. Not differentiable.

        Args:
            tensors: all on one device.
            name, op, process_set, prescale_factor, postscale_factor: as for ``reducescatter``.

        Returns:
            One handle, for which ``synchronize`` returns the list.
        """
        op, number = scatter_op(op), check_process_set(process_set)
        purpose = Purpose(_core.REDUCESCATTER, op, prescale_factor, postscale_factor)
        return self._start_scatter(list(tensors), True, name, purpose, number)

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
        """A reducescatter of each of ``tensors`` as one operation, all or none. Differentiable.

        Args:
            tensors: all on one device.
            name, compression, op, process_set, prescale_factor, postscale_factor: as for ``reducescatter``.

        Returns:
            For each tensor, the rows of this rank.
        """
        op = scatter_op(op)
        check_process_set(process_set)
        compressor = resolve_plain_compression(compression, "grouped_reducescatter")
        packed = Packed(compressor, tensors)
        arguments = (packed.tensors, name, op, process_set, prescale_factor, postscale_factor)
        if any(map(self.glue.records_gradient, packed.tensors)):
            return packed.unpacked(self.recorded("grouped_reducescatter", *arguments))
        return packed.unpacked(self.synchronize(self.grouped_reducescatter_async(*arguments)))

    def allgather_number_lists(
        self,
        numbers: Sequence[int],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[list[int]]:
        """Every rank's ``numbers`` (signed 64-bit integers, equally many on all ranks), in rank order."""
        tensor = self.glue.from_bytes(array.array("q", numbers).tobytes())
        data = self.glue.to_bytes(self.synchronize(self.allgather_async(tensor, name, process_set)))
        words, count = list(memoryview(data).cast("q")), len(numbers)
        return [words[start : start + count] for start in range(0, len(words), count)]

    def allgather_numbers(
        self, number: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[int]:
        """Every rank's ``number`` (a signed 64-bit integer), in rank order."""
        return [row[0] for row in self.allgather_number_lists([number], name, process_set)]

    def _splits_of(self, splits: Any, rows: int, process_set: ProcessSet) -> list[int]:
        counts = [] if splits is None else self.glue.integers(splits)
        return resolve_splits(counts, rows, process_set.size() or 1)

    def _start_gather(
        self, tensors: list[Tensor], grouped: bool, name: str | None, process_set: int, op: int = Sum
    ) -> int:
        purpose = Purpose(_core.ALLGATHER, op)
        placements = self.place_group(tensors, Result.FROM_CORE, purpose)
        _check_dimensions(placements, "allgather concatenates")
        return self.start(purpose, name, placements, grouped, process_set=process_set)

    def _start_scatter(
        self, tensors: list[Tensor], grouped: bool, name: str | None, purpose: Purpose, process_set: int
    ) -> int:
        placements = self.place_group(tensors, Result.FROM_CORE, purpose)
        if any(len(placement.spec[3]) == 0 for placement in placements):
            raise ValueError(
                "reducescatter deals out the first dimension and a scalar has none; reshape it to (1,)."
            )
        return self.start(purpose, name, placements, grouped, process_set=process_set)


def scatter_op(op: int | None) -> int:
    """The reduction to run. NotImplementedError for Adasum, ValueError for what is no reduction."""
    resolved = resolve_op(op)
    if resolved == Adasum:
        raise NotImplementedError(
            "reducescatter has no Adasum; use op=hvd.Average, Sum, Min, Max or Product."
        )
    return resolved


def resolve_splits(counts: list[int], rows: int, size: int) -> list[int]:
    """How many of the ``rows`` of an alltoall go to each of ``size`` ranks; no ``counts``: equally many.
    Raises ValueError when that does not work out.
    """
    if not counts:
        if rows % size:
            raise ValueError(
                f"alltoall without splits: the first dimension, {rows}, is not divisible by the number "
                f"of workers, {size}."
            )
        return [rows // size] * size
    if len(counts) != size:
        raise ValueError(
            f"Number of entries in splits does not equal number of workers: {len(counts)} and {size}."
        )
    if min(counts) < 0:
        raise ValueError(f"alltoall: the splits {counts} contain a negative number.")
    if sum(counts) > rows:
        raise ValueError(
            f"Sum of splits entries is greater than the first dimension of tensor: {sum(counts)} and {rows}."
        )
    return counts


def _check_dimensions(placements: Sequence[Placement[Any]], what: str) -> None:
    if any(len(placement.spec[3]) == 0 for placement in placements):
        raise ValueError(f"{what} along the first dimension and a scalar has none; reshape it to (1,).")
