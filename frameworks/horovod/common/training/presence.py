"""Which variables have a gradient on some rank.

A rank whose step made no gradient for a variable sends zeros in its place, under that variable's own name, so
that all ranks send the same. A variable for which *no* rank has one must be left as it is: zeros would let
weight decay and momentum move it. So the ranks tell each other what they have, a byte for each variable::

    presence = Presence(ops, f"{prefix}.present", process_set)
    handle = presence.start([gradient is not None for gradient in gradients])
    ...                                    # the gradients travel meanwhile
    somewhere = presence.finish(handle)    # where False, give the optimizer None

The bytes are reduced by Max, in one small operation for all variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from horovod.common.collective.reductions import Reductions
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Max


class Presence(Generic[Tensor]):
    """What the ranks of ``process_set`` tell each other, by ``ops`` of one adapter, in an operation ``name``.

    All ranks must list the same variables in the same order.
    """

    def __init__(
        self, ops: Reductions[Tensor], name: str, process_set: ProcessSet = global_process_set
    ) -> None:
        self._ops = ops
        self._name = name
        self._process_set = process_set

    def start(self, present: Iterable[bool]) -> int:
        """Starts to compare what this rank has; returns a handle for ``finish``.

        Args:
            present: for each variable, whether this rank has a gradient for it.
        """
        mine = self._ops.glue.from_bytes(bytes(map(bool, present)))
        return self._ops.allreduce_async_(mine, None, self._name, Max, process_set=self._process_set)

    def finish(self, handle: int) -> list[bool]:
        """Waits, and returns for each variable whether some rank has a gradient for it.

        Raises:
            TensorMismatchError: the ranks list different numbers of variables.
            HorovodInternalError: a rank is gone.
        """
        return [byte > 0 for byte in self._ops.glue.to_bytes(self._ops.synchronize(handle))]
