"""The operations on torch tensors: the common ones over torch's glue, with autograd, and the one on sparse
tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common import basics
from horovod.common.collective.collectives import Collectives
from horovod.common.collective.objects import ObjectCollectives
from horovod.common.collective.operations import OPERATIONS
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Average, Sum, resolve_op
from horovod.common.training.gradient_buckets import Bucket
from horovod.common.training.gradient_reducer import Reducer
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_variables import Variable
from horovod.torch.autograd import apply, function_of
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.tensors import TorchGlue


class TorchCollectives(Collectives[torch.Tensor]):
    """The common operations, and the one on sparse tensors.

    Attributes:
        functions: the operations as functions of autograd, by name.
    """

    def __init__(self) -> None:
        super().__init__(TorchGlue())
        self._differentiable = {each.name: (function_of(self, each), each) for each in OPERATIONS}
        self.functions = {name: function for name, (function, _) in self._differentiable.items()}

    def recorded(
        self, operation: str, tensors: Sequence[torch.Tensor], *arguments: Any
    ) -> list[torch.Tensor]:
        """See Reductions."""
        return apply(*self._differentiable[operation], tensors, arguments)

    def sparse_allreduce_async(
        self,
        tensor: torch.Tensor,
        name: str | None,
        op: int | None,
        process_set: ProcessSet = global_process_set,
    ) -> Callable[[], torch.Tensor]:
        """Starts to reduce a sparse COO tensor over all ranks. Not differentiable.

        Args:
            tensor: of one shape and type on all ranks; the number of stored elements may differ.
            name: identifies the operation on all ranks.
            op: Sum or Average.
            process_set: the ranks that take part.

        Returns:
            A function that waits and returns the result: every rank's elements, not coalesced, except that an
            Average of integers is: it divides each total, truncating toward zero.

        Raises:
            ValueError: another ``op``, or ``tensor`` is not sparse.
        """
        op = resolve_op(op)
        if op not in (Average, Sum):
            raise ValueError(f"A sparse allreduce supports Average and Sum, not {OP_NAMES[op]}.")
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
            found = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ValueError(f"Expected a sparse COO tensor, not {found}; use hvd.allreduce for a dense one.")
        check_process_set(process_set)
        shape, device, size = tensor.shape, tensor.device, process_set.size() or 1
        tensor = tensor.detach()
        # An allgather goes along the first dimension, which of the indices is the second.
        parts = [tensor._indices().t().contiguous(), tensor._values()]
        handle = self.gather_to_reduce_async(parts, name, op, process_set)

        def finish() -> torch.Tensor:
            indices, values = self.synchronize(handle)
            total = torch.sparse_coo_tensor(indices.t(), values, shape, device=device, check_invariants=True)
            return total if op == Sum else _divided(total, size)

        return finish


def _divided(total: torch.Tensor, size: int) -> torch.Tensor:
    exact = not (total.is_floating_point() or total.is_complex())
    total = total.coalesce() if exact else total
    values = torch.div(total._values(), size, rounding_mode="trunc") if exact else total._values() / size
    averaged = torch.sparse_coo_tensor(total._indices(), values, total.shape, check_invariants=False)
    return averaged._coalesced_(exact)


_GRADIENTS = (GradientReductions, Bucket, Reducer, Variable)
for _operations in (*TorchCollectives.__mro__[:-1], *_GRADIENTS, ObjectCollectives, ProcessSet):
    methods_outside_of_graphs(_operations)

ops = TorchCollectives()
objects = ObjectCollectives(ops)

basics.on_shutdown(ops.reset)
os.register_at_fork(after_in_child=ops.reset_in_child)
