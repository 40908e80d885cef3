"""Every public operation once: names, defaults, checks and documentation. An adapter adds its tensors by
TensorGlue.

Common to all operations: ``name`` identifies the operation on all ranks, which may then start it in any
order; without one, all ranks must start their unnamed operations in one order. ``process_set`` is the ranks
that take part. Errors: ValueError or TypeError for what this caller did wrong, before anything is sent;
TensorMismatchError, the same on every rank, when the ranks disagree about shape, type, reduction, root or
factors; HorovodInternalError when a rank is gone.
"""

from __future__ import annotations

from horovod import _core
from horovod.common import basics
from horovod.common.placement import Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reductions import Reductions
from horovod.common.tensor_glue import Result

_NUMBER_BYTES = 8


class Collectives(Reductions[Tensor]):
    """All operations of one adapter; the bound methods are the functions that users call."""

    def broadcast_async_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to overwrite ``tensor`` with that of rank ``root_rank``; returns a handle."""
        return self._start_broadcast(tensor, Result.IN_PLACE, root_rank, name, process_set)

    def broadcast_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Overwrites ``tensor`` with that of rank ``root_rank`` (a global rank) and returns it."""
        return self.synchronize(self._start_broadcast(tensor, Result.IN_PLACE, root_rank, name, process_set))

    def broadcast_async(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to copy the tensor of rank ``root_rank`` into a new tensor; returns a handle. Not
        differentiable.
        """
        return self._start_broadcast(tensor, Result.LIKE_INPUT, root_rank, name, process_set)

    def broadcast(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Returns a copy of the tensor of rank ``root_rank``; all ranks give one of its shape and type.
        Differentiable: the gradient is the average over all ranks on the root, and zero elsewhere.
        """
        if self.glue.records_gradient(tensor):
            check_process_set(process_set)
            _check_root(root_rank)
            return self.glue.broadcast_recorded(tensor, root_rank, name)
        return self.synchronize(
            self._start_broadcast(tensor, Result.LIKE_INPUT, root_rank, name, process_set)
        )

    def allgather_async(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts to concatenate the ranks' tensors along the first dimension; returns a handle. Not
        differentiable.
        """
        check_process_set(process_set)
        placement = self.glue.place(tensor, Result.FROM_CORE)
        if self.glue.dimensions(tensor) == 0:
            raise ValueError(
                "allgather concatenates along the first dimension and a scalar has none; reshape it to (1,)."
            )
        return self.start(_core.ALLGATHER, name, [placement])

    def allgather(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """Concatenates the tensors of all ranks, in rank order, along the first dimension.

        The first dimension may differ between ranks (0 too); the others and the type must be equal.
        Differentiable: the gradient is the average over all ranks, of which each takes the rows that it
        contributed.
        """
        if self.glue.records_gradient(tensor):
            check_process_set(process_set)
            return self.glue.allgather_recorded(tensor, name)
        return self.synchronize(self.allgather_async(tensor, name, process_set))

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when every rank has called it."""
        check_process_set(process_set)
        _core.run(_core.BARRIER, None, ())

    def allgather_numbers(self, number: int, name: str | None = None) -> list[int]:
        """Every rank's ``number`` (a signed 64-bit integer), in rank order."""
        tensor = self.glue.from_bytes(number.to_bytes(_NUMBER_BYTES, "little", signed=True))
        data = self.glue.to_bytes(self.synchronize(self.allgather_async(tensor, name)))
        words = [data[at : at + _NUMBER_BYTES] for at in range(0, len(data), _NUMBER_BYTES)]
        return [int.from_bytes(word, "little", signed=True) for word in words]

    def broadcast_number(self, number: int, root_rank: int, name: str | None = None) -> int:
        """The ``number`` (a signed 64-bit integer) of rank ``root_rank``."""
        tensor = self.glue.from_bytes(number.to_bytes(_NUMBER_BYTES, "little", signed=True))
        return int.from_bytes(
            self.glue.to_bytes(self.broadcast_(tensor, root_rank, name)), "little", signed=True
        )

    def _start_broadcast(
        self, tensor: Tensor, result: Result, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> int:
        check_process_set(process_set)
        _check_root(root_rank)
        return self.start(_core.BROADCAST, name, [self.glue.place(tensor, result)], root=root_rank)


def _check_root(root_rank: int) -> None:
    if not 0 <= root_rank < basics.size():
        raise ValueError(f"root_rank is {root_rank}, but the job has the ranks 0 to {basics.size() - 1}.")
