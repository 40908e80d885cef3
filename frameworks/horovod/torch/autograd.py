"""The operations as functions of torch's autograd. The rules of the gradients are in
``horovod.common.collective.gradients``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.collective.collectives import Collectives
from horovod.common.collective.gradients import RecordedOperation
from horovod.common.collective.operations import Operation

Function = type[torch.autograd.Function]


def function_of(ops: Collectives[torch.Tensor], operation: Operation) -> Function:
    """The class by which autograd records an operation.

    Args:
        ops: the operations that it runs, forward and backward.
        operation: which one.

    Returns:
        A class whose ``apply`` takes the arguments of the public function in the order that existing code
        gives them: the tensor comes first, those of a group last.
    """
    count = len(operation.arguments)
    has_splits = "splits" in operation.arguments

    def forward(ctx: Any, *given: Any) -> Any:
        tensors, arguments = (given[count:], given[:count]) if operation.grouped else (given[:1], given[1:])
        ctx.done = RecordedOperation(ops, operation, arguments)
        result = ctx.done.run(tensors)
        if ctx.done.needs_tensors:
            ctx.save_for_backward(*tensors)
        if operation.grouped:
            return tuple(result)
        if not has_splits:
            return result
        received, sources = result
        if ctx.done.arguments["splits"] is None:
            return received
        ctx.mark_non_differentiable(sources)
        return received, sources

    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given = gradients if operation.grouped else gradients[:1]
        of_tensors = ctx.done.gradients(given, ctx.saved_tensors)
        of_arguments = (None,) * count
        return (*of_arguments, *of_tensors) if operation.grouped else (*of_tensors, *of_arguments)

    name = "Horovod" + operation.name.title().replace("_", "")
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    about = {"__module__": "horovod.torch.mpi_ops", "__doc__": f"Differentiable {operation.name}."}
    return type(name, (torch.autograd.Function,), {**about, **methods})


def apply(
    function: Function, operation: Operation, tensors: Sequence[torch.Tensor], arguments: Sequence[Any]
) -> list[torch.Tensor]:
    """Calls a class of ``function_of``; returns its results."""
    given = (*arguments, *tensors) if operation.grouped else (*tensors, *arguments)
    results: Any = function.apply(*given)
    return list(results) if isinstance(results, tuple) else [results]
