"""Gradients on their way: which travel together, when they leave and how they come back.

A *pass* is one backward pass over a parameter. A gradient is *due* when the expected number of passes has
been made; a *group* is one or more parameters whose gradients are submitted as one operation, when all of
them are due. Names and memberships are made once, so that from the second step on the core knows every
submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.compression import Compressor, NoneCompressor
from horovod.torch.operations import ops
from horovod.torch.tensors import overlaps


class Reduction:
    """How the gradients of one optimizer are reduced."""

    __slots__ = ("compressor", "op", "passes", "postscale", "prescale", "sparse_as_dense")

    def __init__(
        self,
        op: int,
        prescale: float,
        postscale: float,
        compressor: type[Compressor],
        sparse_as_dense: bool,
        passes: int,
    ) -> None:
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.compressor = compressor
        self.sparse_as_dense = sparse_as_dense
        self.passes = passes


class GradientGroup:
    """Parameters whose gradients travel together."""

    __slots__ = ("_contexts", "_due", "_error", "_reduction", "_sent", "_submit", "handle", "members", "name")

    def __init__(
        self, name: str, parameters: Sequence[tuple[str, torch.Tensor]], reduction: Reduction
    ) -> None:
        self.name = name
        self.members = [GradientHook(self, label, parameter, reduction) for label, parameter in parameters]
        self.handle: int | None = None
        self._reduction = reduction
        self._due = 0
        self._contexts: list[Any] | None = None
        self._sent: list[torch.Tensor] = []
        self._error: Exception | None = None
        plain = len(parameters) == 1 and reduction.compressor is NoneCompressor
        self._submit = self._submit_single if plain else self._submit_many

    @property
    def in_flight(self) -> bool:
        """Whether a reduction was started, or tried, that ``complete`` has not seen."""
        return self.handle is not None or self._error is not None

    def one_more_due(self) -> None:
        """A member's gradient is due; the last one sends the group off. A failure waits for ``complete``,
        because an exception in a hook would end the backward pass halfway.
        """
        self._due += 1
        if self._due == len(self.members):
            try:
                self._submit()
            except Exception as error:
                self._error = error

    def submit_incomplete(self) -> None:
        """Sends off a group of which some gradients never became due: parameters that this step did not use
        take part with zeros, so that all ranks submit the same.
        """
        if self.in_flight or not any(hook.parameter.requires_grad for hook in self.members):
            return
        for hook in self.members:
            if hook.parameter.grad is None:
                hook.parameter.grad = torch.zeros_like(hook.parameter)
        self._due = len(self.members) - 1
        self.one_more_due()

    def complete(self) -> None:
        """Waits for the reduction, leaves the result in the gradients, and is ready for the next step."""
        handle, error, sent, contexts = self.handle, self._error, self._sent, self._contexts
        self.reset()
        if error is not None:
            raise _named(error, self.members)
        if handle is None:
            return
        ops.synchronize(handle)
        if contexts is None:
            return
        for hook, tensor, context in zip(self.members, sent, contexts, strict=True):
            result = self._reduction.compressor.decompress(tensor, context)
            gradient = hook.parameter.grad
            if gradient is not None and gradient is not result:
                gradient.detach().copy_(result)

    def reset(self) -> None:
        """Forgets the reduction in flight and expects the full number of passes again."""
        self.handle = self._error = self._contexts = None
        self._sent = []
        self._due = 0
        for hook in self.members:
            hook.passes_left = self._reduction.passes

    def _submit_single(self) -> None:
        gradient = self.members[0].parameter.grad
        if gradient is None or gradient.layout is not torch.strided or not gradient.is_contiguous():
            gradient = self.members[0].sendable_gradient()
        reduction = self._reduction
        self.handle = ops.allreduce_async_(
            gradient, None, self.name, reduction.op, reduction.prescale, reduction.postscale
        )

    def _submit_many(self) -> None:
        gradients = [hook.sendable_gradient() for hook in self.members]
        reduction = self._reduction
        if reduction.compressor is not NoneCompressor:
            compressed = [reduction.compressor.compress(gradient) for gradient in gradients]
            gradients = [tensor for tensor, _ in compressed]
            self._contexts = [context for _, context in compressed]
        self._sent = gradients
        arguments = (None, self.name, reduction.op, reduction.prescale, reduction.postscale)
        if len(gradients) == 1:
            self.handle = ops.allreduce_async_(gradients[0], *arguments)
        else:
            self.handle = ops.grouped_allreduce_async_(gradients, *arguments)


class GradientHook:
    """One parameter's part in its group; called by autograd after each accumulation of its gradient."""

    __slots__ = ("_reduction", "group", "name", "parameter", "passes_left")

    def __init__(
        self, group: GradientGroup, name: str, parameter: torch.Tensor, reduction: Reduction
    ) -> None:
        self.group = group
        self.name = name
        self.parameter = parameter
        self.passes_left = reduction.passes
        self._reduction = reduction

    def __call__(self, parameter: torch.Tensor) -> None:
        left = self.passes_left - 1
        if left < 0:
            raise AssertionError(
                f"The gradient of {self.name!r} was computed more than backward_passes_per_step times before "
                "optimizer.step() or optimizer.synchronize(). Increase backward_passes_per_step to "
                "accumulate gradients locally."
            )
        self.passes_left = left
        if left == 0:
            self.group.one_more_due()

    def sendable_gradient(self) -> torch.Tensor:
        """The parameter's gradient, made dense where it is sparse, with memory of its own where it is an
        expanded view; the parameter holds what is returned.
        """
        gradient = self.parameter.grad
        if gradient is None:
            gradient = self.parameter.grad = torch.zeros_like(self.parameter)
        elif gradient.layout is not torch.strided:
            if not self._reduction.sparse_as_dense:
                raise ValueError(
                    "it is sparse; give DistributedOptimizer(sparse_as_dense=True), "
                    "or sparse=False to the layer"
                )
            gradient = self.parameter.grad = gradient.to_dense()
        elif overlaps(gradient):
            gradient = self.parameter.grad = gradient.contiguous()
        return gradient


def _named(error: Exception, members: Sequence[GradientHook]) -> Exception:
    names = ", ".join(repr(hook.name) for hook in members)
    text = f"The gradient of parameter {names} could not be submitted: {error}"
    try:
        named = type(error)(text)
    except TypeError:
        named = RuntimeError(text)
    named.__cause__ = error
    return named
