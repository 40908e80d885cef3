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
from horovod.torch.distributed.checks import Expected
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


def spec(
    source: torch.Tensor, output: torch.Tensor | None, shape: Sequence[int], dtype: torch.dtype | None = None
) -> Spec:
    """What the core is told.

    Args:
        source: from ``flat_source`` or a Target.
        output: of a Target; None: the core allocates.
        shape: of the source, as the ranks are to agree on it.
        dtype: of the tensor that the source stands for; None: its own. Where it is another one the shape says
            so, by dimensions of 1 at its end, so that ranks disagree whose tensors look alike to the core.
    """
    to, room = (0, 0) if output is None else (output.data_ptr(), output.nbytes)
    if dtype is not None and dtype is not source.dtype:
        shape = (*shape, 1) if dtype.is_complex else (*shape, 1, 1)
    return (source.data_ptr(), to, DTYPES[source.dtype], shape, source.nbytes, room)


def width(tensor: torch.Tensor) -> int:
    """How many elements stand for one of ``tensor`` in the core."""
    if tensor.is_complex():
        return 2
    return 1 if tensor.dtype in DTYPES else tensor.dtype.itemsize


def flat_source(tensor: torch.Tensor, moved: bool = True) -> torch.Tensor:
    """The tensor's elements, of one dimension, as the core can read them.

    Args:
        tensor: any but a sparse one.
        moved: it is moved and not reduced, so a type that the core does not know may be bytes.
    """
    _check_dense(tensor)
    return _plain(tensor, moved).resolve_neg().contiguous().view(-1).cpu()


def apart(source: torch.Tensor, output: torch.Tensor, place: int | None = None) -> torch.Tensor:
    """What may be sent while ``output`` is filled: the source, or a copy if it shares memory with that.

    Args:
        source: from ``flat_source``.
        output: of a Target.
        place: of the parts of the output, each of the source's size, the one that becomes equal to the
            source, which may be it.
    """
    shift = source.data_ptr() - output.data_ptr()
    shared = -source.nbytes < shift < output.nbytes
    return source.clone() if shared and (place is None or shift != place * source.nbytes) else source


def target(tensor: torch.Tensor, moved: bool = True) -> Target:
    """Where the result for ``tensor`` goes: itself or a substitute that has its elements (to be reduced in
    place).

    Raises:
        ValueError: several of its elements share memory.
    """
    _check_dense(tensor)
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


def _check_dense(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"A tensor of layout {tensor.layout} cannot take part in this operation: of sparse tensors, "
            "all_reduce takes those of torch.sparse_coo; make it dense with to_dense()."
        )


def _plain(tensor: torch.Tensor, moved: bool) -> torch.Tensor:
    """A view of a type that the core knows (a copy of a conjugated or negated view)."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.dtype in DTYPES:
        return plain
    if not moved:
        raise ValueError(f"Tensors of {tensor.dtype} can be moved, but not reduced.")
    return plain.contiguous().view(-1).view(torch.uint8) if plain.dim() == 0 else plain.view(torch.uint8)


def delivering(targets: Sequence[Target], expected: Expected | None = None) -> Finish | None:
    """What is to be done for targets when their operation is complete; None: nothing.

    Args:
        targets: of one operation.
        expected: what the other ranks are to send, where they have a say in that.
    """
    late = [each for each in targets if not each.is_direct]
    if not late and expected is None:
        return None

    def finish(outputs: list[_core.Output] | None) -> None:
        if expected is not None:
            expected.check(outputs)
        for each in late:
            each.deliver()

    return finish
