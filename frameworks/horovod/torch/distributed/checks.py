"""What a rank can see alone of a call, before anything is sent; and afterwards, whether the ranks have sent
what its outputs are for.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from horovod import _core
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import at_odds, differ, wrong_call

_SAID_BYTES = 256


def check_rank(communicator: Communicator, what: str, rank: int) -> None:
    """Raises ValueError where the group has no such rank.

    Args:
        communicator: of the group.
        what: the operation and what the rank is in it.
        rank: of the group, or not.
    """
    if not 0 <= rank < communicator.size:
        raise wrong_call(communicator, what, f"there is no rank {rank} (only 0 to {communicator.size - 1})")


def check_list(
    communicator: Communicator, what: str, tensors: Sequence[torch.Tensor], like: torch.Tensor | None = None
) -> None:
    """Raises ValueError unless there is one tensor for each rank, and all have the type of ``like``.

    Args:
        communicator: of the group.
        what: the operation and what the tensors are in it.
        tensors: a list for the ranks.
        like: a tensor that goes with them; None: the first of them.
    """
    if len(tensors) != communicator.size:
        raise wrong_call(
            communicator,
            what,
            f"{len(tensors)} tensors were given; give one for each of {communicator.size} ranks",
        )
    dtype = (tensors[0] if like is None else like).dtype
    for rank, tensor in enumerate(tensors):
        if tensor.dtype is not dtype:
            raise wrong_call(
                communicator, what, f"tensor {rank} is of {tensor.dtype}; give all of one type, here {dtype}"
            )


def as_bytes(said: str) -> torch.Tensor:
    """A text as ``check_alike`` takes it from each rank, of one length."""
    text = said.encode()[:_SAID_BYTES].ljust(_SAID_BYTES)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def check_alike(communicator: Communicator, what: str, told: torch.Tensor) -> None:
    """Raises TensorMismatchError, with one text on all ranks, unless all have told the same: by position, one
    behind the other.
    """
    rows = told.view(communicator.size, _SAID_BYTES)
    if bool((rows == rows[0]).all()):
        return
    by_position = [bytes(row.tolist()).decode(errors="replace").rstrip() for row in rows]
    by_rank = [by_position[communicator.position(rank)] for rank in range(communicator.size)]
    raise differ(communicator, what, by_rank)


def check_sizes(
    communicator: Communicator, what: str, tensors: Sequence[torch.Tensor], elements: int, of: str
) -> None:
    """Raises ValueError unless all tensors have so many elements.

    Args:
        communicator: of the group.
        what: the operation and what the tensors are in it.
        tensors: a list for the ranks.
        elements: that each should have.
        of: what has as many.
    """
    for rank, tensor in enumerate(tensors):
        if tensor.numel() != elements:
            raise wrong_call(
                communicator,
                what,
                f"tensor {rank} has {tensor.numel()} elements, but {of} has {elements}; give all of one size",
            )


def split_counts(
    communicator: Communicator, tensor: torch.Tensor, splits: Sequence[int], what: str
) -> list[int]:
    """How many rows of ``tensor`` go with each rank: the splits, or without any equally many.

    Args:
        communicator: of the group.
        tensor: whose rows they are.
        splits: by rank of the group.
        what: the tensor: "input" or "output".

    Raises:
        ValueError: they are not numbers of rows for the ranks that make up the tensor.
    """
    size, where = communicator.size, f"all_to_all_single, {what}"
    if tensor.dim() == 0:
        raise wrong_call(communicator, where, "a tensor without dimensions has no rows; reshape it to [1]")
    rows = tensor.shape[0]
    counts = list(splits)
    if not counts:
        if rows % size:
            raise wrong_call(
                communicator, where, f"{rows} rows are not equally many for each of {size} ranks; give splits"
            )
        return [rows // size] * size
    if len(counts) != size or sum(counts) != rows or min(counts) < 0:
        raise wrong_call(
            communicator,
            where,
            f"the splits {counts} are not one number of rows for each of {size} ranks, {rows} rows in all",
        )
    return counts


class Expected:
    """What the ranks are to send to this one: ``room``, in the order of the process set.

    Args:
        communicator: of the group.
        what: the operation.
        room: how much is expected of each rank.
        width: so much of that is one of ``unit``.
        unit: in which people count.
    """

    __slots__ = ("_bytes", "_communicator", "_room", "_unit", "_what", "_width")

    def __init__(
        self, communicator: Communicator, what: str, room: Sequence[int], width: int, unit: str = "elements"
    ) -> None:
        self._communicator = communicator
        self._what = what
        self._room = room
        self._width = width
        self._unit = unit
        self._bytes = array("q", room).tobytes()

    def check(self, outputs: list[_core.Output] | None) -> None:
        """Raises TensorMismatchError where a rank has sent something else, by the core's outputs of an
        alltoall.
        """
        if outputs is None:  # alone
            return
        counts = outputs[-1].tobytes()
        if counts != self._bytes:
            self.compare(array("q", counts))

    def compare(self, sent: Sequence[int]) -> None:
        """Likewise, by how much each rank has sent."""
        communicator, width = self._communicator, self._width
        for rank in range(communicator.size):
            position = communicator.position(rank)
            came, expected = sent[position], self._room[position]
            if came != expected:
                raise at_odds(communicator, self._what, rank, came // width, expected // width, self._unit)
