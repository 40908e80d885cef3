"""Messages between two ranks: send and recv. The two ranks alone know of one, and its tag and the order of
sending say which receive gets it; nothing else of the job takes part.
"""

from __future__ import annotations

import operator
from typing import Any

from horovod import _core
from horovod.common import basics
from horovod.common.collective.handles import Submission
from horovod.common.collective.tensor_glue import Placement, Purpose, Result, Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set

ANY_RANK = -1
"""Of a receive from whichever rank, as the core takes it."""
_TAG_BITS = 62  # and a sign: the core's own messages have the others


class Messages(Submission[Tensor]):
    """The messages of one adapter; the bound methods are the functions that users call."""

    def send_async(
        self, tensor: Tensor, dest: int, tag: int = 0, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts a ``send``.

        Args:
            tensor, dest, tag, process_set: as for ``send``; the tensor must not be changed before the end.

        Returns:
            A handle for ``synchronize``, which returns None.
        """
        number = check_process_set(process_set)
        check_rank("dest", dest, process_set)
        purpose = Purpose(_core.SEND)
        placements = [self.glue.place(tensor, Result.IN_PLACE, purpose)]
        return self.start(
            purpose, None, placements, root=dest, process_set=number, finish=_sent, tag=check_tag(tag)
        )

    def send(
        self, tensor: Tensor, dest: int, tag: int = 0, process_set: ProcessSet = global_process_set
    ) -> None:
        """Sends a tensor to one rank, which calls ``recv``. Returns when the tensor may be changed again: a
        small one may still be on its way then, a large one has met its receive. Not differentiable.

        Args:
            tensor: contiguous or not.
            dest: a rank of the job, not a position in ``process_set``; this one too.
            tag: of the message; with its sender and the process set it says which receives fit it. Messages
                that agree in these are received in the order of sending.
            process_set: one that both ranks belong to; messages of different ones do not meet.

        Raises:
            ValueError, TypeError: this caller did something wrong; nothing was sent.
            HorovodInternalError: a rank is gone.
        """
        spec = self._describe(tensor)
        if spec is None:
            return self.synchronize(self.send_async(tensor, dest, tag, process_set))
        number = check_process_set(process_set)
        check_rank("dest", dest, process_set)
        _core.run(_core.SEND, None, (spec,), root=dest, process_set=number, keep=tensor, tag=check_tag(tag))
        return None

    def recv_async(
        self,
        tensor: Tensor,
        source: int | None = None,
        tag: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Starts a ``recv``.

        Args:
            tensor, source, tag, process_set: as for ``recv``; the tensor must not be used before the end.

        Returns:
            A handle for ``synchronize``, which returns the rank that has sent the message.
        """
        number = check_process_set(process_set)
        source = check_source(source, process_set)
        purpose = Purpose(_core.RECV)
        placements = [self.glue.place(tensor, Result.IN_PLACE, purpose)]
        return self.start(
            purpose, None, placements, root=source, process_set=number, finish=_received, tag=check_tag(tag)
        )

    def recv(
        self,
        tensor: Tensor,
        source: int | None = None,
        tag: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Receives a message of one rank, which calls ``send``, into a tensor. Not differentiable.

        Args:
            tensor: overwritten; as many bytes as that which is sent.
            source: a rank of the job, not a position in ``process_set``; this one too. None: any rank.
            tag: that of the message.
            process_set: that of the message.

        Returns:
            The rank that has sent it.

        Raises:
            ValueError, TypeError: this caller did something wrong; it receives nothing.
            TensorMismatchError: the message has another size. It is received all the same, and dropped.
            HorovodInternalError: a rank is gone.
        """
        spec = self._describe(tensor)
        if spec is None:
            handle = self.recv_async(tensor, source, tag, process_set)
            source_rank: int = self.synchronize(handle)
            return source_rank
        number = check_process_set(process_set)
        source = check_source(source, process_set)
        self._overwrites((tensor,))
        outputs = _core.run(
            _core.RECV, None, (spec,), root=source, process_set=number, keep=tensor, tag=check_tag(tag)
        )
        return sender(outputs)


def check_rank(what: str, rank: int, process_set: ProcessSet) -> None:
    """Raises ValueError unless ``rank`` is a member of the set."""
    if not 0 <= rank < basics.size():
        raise ValueError(f"{what} is {rank}, but the job has the ranks 0 to {basics.size() - 1}.")
    if process_set is not global_process_set and rank not in (process_set.ranks or ()):
        raise ValueError(
            f"{what} is {rank}, a rank of the job that is not part of process set "
            f"{process_set.process_set_id}, whose members are the ranks {process_set.ranks}."
        )


def check_source(source: int | None, process_set: ProcessSet) -> int:
    """As the core takes it. Raises as ``check_rank``."""
    if source is None:
        return ANY_RANK
    check_rank("source", source, process_set)
    return source


def check_tag(tag: int) -> int:
    """The tag. Raises TypeError or ValueError for what is none."""
    number = operator.index(tag)
    if not -(1 << _TAG_BITS) <= number < 1 << _TAG_BITS:
        raise ValueError(f"A tag is an integer from -2**62 to 2**62 - 1, not {number}.")
    return number


def _sent(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> None:
    return None


def _received(placements: list[Placement[Any]], outputs: list[_core.Output] | None) -> int:
    placements[0].finish(None)
    return sender(outputs)


def sender(outputs: list[_core.Output] | None) -> int:
    """The rank that has sent what was received, from the outputs of a RECV."""
    if not outputs:
        raise RuntimeError("the core gave a receive no output")
    return int(memoryview(outputs[0].tobytes()).cast("q")[0])
