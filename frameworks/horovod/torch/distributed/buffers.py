"""How tensors of torch.distributed take part in an operation of the core: as they are where they can, else by
way of contiguous copies in host memory.

The core takes contiguous tensors of its types in host memory. Complex numbers travel as pairs of real ones,
types that the core does not know as bytes (so they can be moved and not reduced), and what lies on a device
is staged: copied to the host before the operation starts, and back when it is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from horovod import _core
from horovod.common.collective.tensor_glue import Spec
from horovod.torch.distributed.work import Finish
from horovod.torch.placements import DTYPES
from horovod.torch.tensors import describe, overlaps


class Target:
    """Where the result for a tensor goes: ``buffer``, a contiguous tensor in host memory, which is the tensor
    itself (as real numbers or bytes) or a substitute for it.
    """

    __slots__ = ("_holder", "_tensor", "buffer")

    def __init__(
        self, buffer: torch.Tensor, tensor: torch.Tensor | None, holder: torch.Tensor | None
    ) -> None:
        self.buffer = buffer
        self._tensor = tensor  # None: the buffer is it
        self._holder = holder  # of the buffer's memory, as the tensor's type

    @property
    def is_direct(self) -> bool:
        """Whether nothing is to be done after the operation."""
        return self._tensor is None

    def deliver(self) -> None:
        """Brings the result from a substitute to the tensor."""
        if self._tensor is not None and self._holder is not None:
            self._tensor.copy_(self._holder)


def in_place(tensors: Sequence[torch.Tensor]) -> list[Spec] | None:
    """What the core is told of tensors that it can overwrite as they are; None: one is not so."""
    specs: list[Spec] = []
    for tensor in tensors:
        found = describe(tensor)
        if found is None:
            return None
        specs.append(found)
    return specs


def spec(source: torch.Tensor, output: torch.Tensor | None, shape: Sequence[int]) -> Spec:
    """What the core is told.

    Args:
        source: from ``flat_source`` or a Target.
        output: of a Target; None: the core allocates.
        shape: of the source, as the ranks are to agree on it.
    """
    to, room = (0, 0) if output is None else (output.data_ptr(), output.nbytes)
    return (source.data_ptr(), to, DTYPES[source.dtype], shape, source.nbytes, room)


def flat_source(tensor: torch.Tensor, moved: bool = True) -> torch.Tensor:
    """The tensor's elements, of one dimension, as the core can read them.

    Args:
        tensor: any but a sparse one.
        moved: it is moved and not reduced, so a type that the core does not know may be bytes.
    """
    return _plain(tensor, moved).resolve_neg().contiguous().view(-1).cpu()


def target(tensor: torch.Tensor, moved: bool = True) -> Target:
    """Where the result for ``tensor`` goes: itself or a substitute that has its elements (to be reduced in
    place).

    Raises:
        ValueError: several of its elements share memory.
    """
    if overlaps(tensor):
        raise ValueError(
            "A tensor that receives a result must not have elements that share memory (an expanded view)."
        )
    if tensor.is_conj():
        resolved = tensor.detach().resolve_conj().contiguous().cpu()
        return Target(torch.view_as_real(resolved), tensor.detach(), resolved)
    plain = _plain(tensor, moved)
    if plain.is_contiguous() and plain.is_cpu and not plain.is_neg():
        return Target(plain, None, None)
    buffer = plain.resolve_neg().contiguous().cpu()
    return Target(buffer, plain, buffer)


def _plain(tensor: torch.Tensor, moved: bool) -> torch.Tensor:
    """A view of a type that the core knows (a copy of a conjugated or negated view)."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"A tensor of layout {tensor.layout} cannot take part in this operation.")
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.dtype in DTYPES:
        return plain
    if not moved:
        raise ValueError(f"Tensors of {tensor.dtype} can be moved, but not reduced.")
    return plain.contiguous().view(-1).view(torch.uint8) if plain.dim() == 0 else plain.view(torch.uint8)


def delivering(targets: Sequence[Target], sized: bool = False) -> Finish | None:
    """What is to be done for targets when their operation is complete; None: nothing.

    Args:
        targets: of one operation.
        sized: the other ranks have a say in how large the result is.
    """
    late = [each for each in targets if not each.is_direct]
    if not late and not sized:
        return None
    buffers = [each.buffer for each in targets]

    def finish(outputs: list[_core.Output] | None) -> None:
        check_fits(outputs, buffers)
        for each in late:
            each.deliver()

    return finish


def check_fits(outputs: list[_core.Output] | None, buffers: Sequence[torch.Tensor]) -> None:
    """Raises ValueError where the core has not put its results into ``buffers``: they have another size."""
    for output, buffer in zip(outputs or (), buffers, strict=False):
        if buffer.numel() > 0 or 0 not in output.shape:
            raise ValueError(
                f"The ranks have sent {list(output.shape)} elements in all, but the output has room for "
                f"{buffer.numel()}: give all ranks tensors, and splits, that go with each other."
            )
