"""What an adapter says about its framework's tensors: how one takes part in an operation. All that differs
between frameworks is behind the verbs of ``TensorGlue``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from horovod import _core
from horovod.common.reduce_ops import Sum

Tensor = TypeVar("Tensor")
Output = _core.Output

DTYPES = _core.DTYPES
"""The numbers of the element types, by the names that numpy uses."""

describer = _core.describer
"""Makes a ``TensorGlue.describe`` of a framework's DLPack exchange table, in place of one in Python."""

# (input address, output address, dtype number, shape, input bytes, output bytes), as _core.submit takes it.
# Output address 0: the core allocates.
Spec = tuple[int, int, int, Sequence[int], int, int]


class Purpose(NamedTuple):
    """The operation that tensors are placed for: its kind, and the reduction with its factors.
    ``of_optimizer``: its tensors are the gradients of an optimizer, which watches their versions itself.
    """

    kind: int
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    of_optimizer: bool = False

    @property
    def raises_versions(self) -> bool:
        """Whether a framework has to hear that tensors which are placed in place are overwritten."""
        return self.kind != _core.SEND and not self.of_optimizer

    def runs_on_gpu(self, dtype: int) -> bool:
        """Whether this job does that on the GPUs themselves, for a type; the same on every rank."""
        return _core.gpu_serves(self.kind, dtype, self.op, self.prescale, self.postscale)


class Location(NamedTuple):
    """Where the addresses of a spec point to, as _core.submit takes it: a number of a GPU, or one of the
    constants of the core; for a GPU the stream on which the caller works, and an event that is reached on it
    once the inputs are computed (0: they are).
    """

    device: int
    stream: int = 0
    ready_event: int = 0


IN_HOST_MEMORY = Location(_core.HOST_DEVICE)

STAGED = Location(_core.STAGED_DEVICE)
"""In host memory too, as the copy of a tensor that is on a device, as those of the other ranks must be."""


class Placement(Generic[Tensor]):
    """A tensor described to the core. It keeps alive whatever the addresses of ``spec`` point into.

    ``ready``, when not None, blocks until the bytes may be read (a copy from a GPU is under way until then).
    ``finish`` runs once, after the operation, and returns the result.
    """

    __slots__ = ("_finish", "_kept", "location", "ready", "spec")

    def __init__(
        self,
        spec: Spec,
        kept: Any,
        finish: Callable[[Output | None], Tensor],
        ready: Callable[[], None] | None = None,
        location: Location = IN_HOST_MEMORY,
    ) -> None:
        self.spec = spec
        self.ready = ready
        self.location = location
        self._kept = kept
        self._finish = finish

    def finish(self, output: Output | None) -> Tensor:
        """The result; ``output`` is what the core allocated for this tensor, if it did."""
        return self._finish(output)


class Result(enum.Enum):
    """Where the result of an operation goes."""

    IN_PLACE = "into the input"
    LIKE_INPUT = "into a new tensor of the input's shape"
    FROM_CORE = "into memory that the core allocates, because only negotiation tells the size"


class TensorGlue(Generic[Tensor]):
    """Interface; see the adapters for implementations."""

    def describe(self, tensor: Tensor) -> Spec | None:
        """The in-place description of a contiguous CPU tensor; None for one that needs ``place``. The hot
        path.
        """
        raise NotImplementedError

    def place(self, tensor: Tensor, result: Result, purpose: Purpose) -> Placement[Tensor]:
        """Any tensor that can take part. Raises ValueError for one that cannot, TypeError for what is no
        tensor.
        """
        raise NotImplementedError

    def place_group(
        self, tensors: Sequence[Tensor], result: Result, purpose: Purpose
    ) -> list[Placement[Tensor]]:
        """As ``place``, tensors that travel as one operation: all have one location, if they are on one
        device.
        """
        return [self.place(tensor, result, purpose) for tensor in tensors]

    def empty_like(self, tensor: Tensor) -> tuple[Tensor, int]:
        """A contiguous CPU tensor for the result of one that ``describe`` described, and its address."""
        raise NotImplementedError

    def device(self, tensor: Tensor) -> object:
        """What must be equal within a group."""
        raise NotImplementedError

    def rows(self, tensor: Tensor, start: int, count: int) -> Tensor:
        """``count`` rows of the first dimension, from ``start`` on."""
        raise NotImplementedError

    def row_count(self, tensor: Tensor) -> int:
        """The first dimension; 0 for a scalar."""
        raise NotImplementedError

    def placed(self, tensor: Tensor, counts: Sequence[int], starts: Sequence[int], rows: int) -> Tensor:
        """The rows of ``tensor``, ``counts[i]`` of them from ``starts[i]`` on in turn, among ``rows`` rows of
        zeros.
        """
        raise NotImplementedError

    def scaled(self, tensor: Tensor, factor: float) -> Tensor:
        """A new tensor of the same type with every element multiplied by ``factor``; integers are truncated
        toward zero.
        """
        raise NotImplementedError

    def zeroed(self, tensor: Tensor) -> Tensor:
        """A new tensor of zeros, of the same shape, type and device. Where gradients are recorded it is a
        function of ``tensor``, so that the rank takes part in what the gradients of others need.
        """
        raise NotImplementedError

    def equals(self, tensor: Tensor, other: Tensor | float) -> Tensor:
        """A new tensor of its type: 1 where the elements equal those of ``other``, 0 elsewhere."""
        raise NotImplementedError

    def overwrites(self, tensors: Sequence[Tensor], /) -> None:
        """An operation overwrites tensors that ``describe`` has described: for a framework that must know,
        because a backward pass may need what they had. ``place`` sees to it itself. The hot path.
        """

    def integers(self, values: Any) -> list[int]:
        """The elements of a one-dimensional integer tensor of any device, or of a sequence of integers.
        Raises ValueError for anything else.
        """
        raise NotImplementedError

    def integer_tensor(self, values: Sequence[int], like: Any) -> Tensor:
        """A new one-dimensional tensor of int32, or of int64 where int32 is too small, on the device of the
        tensor ``like`` (the CPU, when that is none).
        """
        raise NotImplementedError

    def from_bytes(self, data: bytes) -> Tensor:
        """A new one-dimensional uint8 CPU tensor with a copy of ``data``."""
        raise NotImplementedError

    def to_bytes(self, tensor: Tensor) -> bytes:
        """The content of a uint8 CPU tensor."""
        raise NotImplementedError

    def records_gradient(self, tensor: Tensor) -> bool:
        """Whether an operation on the tensor must be recorded for a backward pass."""
        raise NotImplementedError
