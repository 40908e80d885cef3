"""Every public operation once: names, defaults, checks and documentation. An adapter adds its tensors by
TensorGlue. ``reductions`` has the allreduces, ``gathers`` what deals with rows, ``messages`` send and recv;
here are broadcast, barrier and join.

Common to all operations: ``name`` identifies the operation on all ranks, which may then start it in any
order; without one, all ranks must start their unnamed operations in one order. ``process_set`` is the ranks
that take part: "all ranks" below means all of its ranks, and rank order their order in it. Errors:
ValueError or TypeError for what this caller did wrong, before anything is sent; TensorMismatchError, the same
on every rank, when the ranks disagree about shape, type, reduction, root or factors; HorovodInternalError
when a rank is gone.
"""

from __future__ import annotations

from horovod import _core
from horovod.common import basics
from horovod.common.collective.gathers import Gathers
from horovod.common.collective.messages import Messages, check_rank
from horovod.common.collective.reductions import Reductions
from horovod.common.collective.tensor_glue import Purpose, Result, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set, included_sets

_NUMBER_BYTES = 8


class Collectives(Reductions[Tensor], Gathers[Tensor], Messages[Tensor]):
    """All operations of one adapter; the bound methods are the functions that users call."""

    def broadcast_async_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to overwrite ``tensor`` with that of rank ``root_rank``.

        Args:
            tensor, root_rank, name, process_set: as for ``broadcast``.

        Returns:
            A handle for ``synchronize``.
        """
        return self._start_broadcast(tensor, Result.IN_PLACE, root_rank, name, process_set)

    def broadcast_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Overwrites ``tensor`` with that of rank ``root_rank``.

        Args:
            tensor, root_rank, name, process_set: as for ``broadcast``.

        Returns:
            ``tensor``.
        """
        return self.synchronize(self._start_broadcast(tensor, Result.IN_PLACE, root_rank, name, process_set))

    def broadcast_async(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts to copy the tensor of rank ``root_rank`` into a new tensor. Not differentiable.

        Args:
            tensor, root_rank, name, process_set: as for ``broadcast``.

        Returns:
            A handle for ``synchronize``.
        """
        return self._start_broadcast(tensor, Result.LIKE_INPUT, root_rank, name, process_set)

    def broadcast(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Copies the tensor of rank ``root_rank`` into a new tensor on all ranks. Differentiable: the
        gradient is the average over all ranks on the root, and zero elsewhere.

        Args:
            tensor: of one shape and type on all ranks.
            root_rank: a rank of the job, not a position in ``process_set``; one of its members.
            name: identifies the operation on all ranks, which may then start it in any order.
            process_set: the ranks that take part.

        Returns:
            The copy.

        Raises:
            ValueError, TypeError: this caller did something wrong; nothing was sent.
            TensorMismatchError: the ranks disagree; the same on every rank.
            HorovodInternalError: a rank is gone.
        """
        if self.glue.records_gradient(tensor):
            check_process_set(process_set)
            check_root(root_rank, process_set)
            return self.recorded("broadcast", [tensor], root_rank, name, process_set)[0]
        return self.synchronize(
            self._start_broadcast(tensor, Result.LIKE_INPUT, root_rank, name, process_set)
        )

    def broadcast_number(
        self,
        number: int,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """The ``number`` (a signed 64-bit integer) of rank ``root_rank``."""
        tensor = self.glue.from_bytes(number.to_bytes(_NUMBER_BYTES, "little", signed=True))
        return int.from_bytes(
            self.glue.to_bytes(self.broadcast_(tensor, root_rank, name, process_set)), "little", signed=True
        )

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when every rank of the process set has called it.

        Args:
            process_set: the ranks that take part.

        Raises:
            HorovodInternalError: a rank is gone.
        """
        _core.run(_core.BARRIER, None, (), process_set=check_process_set(process_set))

    def join(self, device: int = -1) -> int:
        """Says that this rank has no more data, and returns when every rank has said so.

        Until then it takes part in every operation of every process set that it belongs to: with zeros in a
        Sum or Average (which still divides by the full size), with the neutral element in a Min, Max or
        Product, with nothing in an allgather, alltoall or reducescatter. A broadcast from it is an error.
        Afterwards all operations are available again.

        Args:
            device: accepted and not needed.

        Returns:
            The rank that joined last.

        Raises:
            HorovodInternalError: a rank is gone.
        """
        self._deferred.flush()  # what was started before must not come after
        handles = [_core.submit(_core.JOIN, None, (), process_set=number) for number in included_sets()]
        outputs = [_core.wait(handle) for handle in handles]
        last = outputs[0]
        if not last:
            raise RuntimeError("the core gave a join no output")
        basics.note_join()
        return int(memoryview(last[0].tobytes()).cast("q")[0])

    def join_set(self, process_set: ProcessSet) -> None:
        """As ``join``, for one process set: its other members go on until each of them has called this."""
        number = check_process_set(process_set)
        self._deferred.flush()
        _core.wait(_core.submit(_core.JOIN, None, (), process_set=number))

    def _start_broadcast(
        self, tensor: Tensor, result: Result, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> int:
        set_number = check_process_set(process_set)
        check_root(root_rank, process_set)
        purpose = Purpose(_core.BROADCAST)
        placements = [self.glue.place(tensor, result, purpose)]
        return self.start(purpose, name, placements, root=root_rank, process_set=set_number)


def check_root(root_rank: int, process_set: ProcessSet) -> None:
    """Raises ValueError unless ``root_rank`` is a member of the set."""
    check_rank("root_rank", root_rank, process_set)
