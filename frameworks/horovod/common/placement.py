"""How one tensor takes part in one operation: where its bytes lie meanwhile, and how the result comes
back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from horovod import _core

Tensor = TypeVar("Tensor")
Output = _core.Output

DTYPES = _core.DTYPES
"""The numbers of the element types, by the names that numpy uses."""

# (input address, output address, dtype number, shape, input bytes, output bytes), as _core.submit takes it.
# Output address 0: the core allocates.
Spec = tuple[int, int, int, Sequence[int], int, int]


class Placement(Generic[Tensor]):
    """A tensor described to the core. It keeps alive whatever the addresses of ``spec`` point into.

    ``ready``, when not None, blocks until the bytes may be read (a copy from a GPU is under way until then).
    ``finish`` runs once, after the operation, and returns the result. ``on_device``: the tensor itself is in
    the memory of an accelerator, as those of the other ranks must be then.
    """

    __slots__ = ("_finish", "_kept", "on_device", "ready", "spec")

    def __init__(
        self,
        spec: Spec,
        kept: Any,
        finish: Callable[[Output | None], Tensor],
        ready: Callable[[], None] | None = None,
        on_device: bool = False,
    ) -> None:
        self.spec = spec
        self.ready = ready
        self.on_device = on_device
        self._kept = kept
        self._finish = finish

    def finish(self, output: Output | None) -> Tensor:
        """The result; ``output`` is what the core allocated for this tensor, if it did."""
        return self._finish(output)
