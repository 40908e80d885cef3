"""Gradients that are reduced: which travel together, when they leave and how they come back.

A *pass* is one backward pass over a parameter. A gradient is *due* when the expected number of passes has
been made; a *bucket* is one or more parameters whose gradients are submitted as one operation, when all of
them are due. Names and memberships are made once, so that from the second step on the core knows every
submission. A dense gradient alone is handled here; whatever takes more, by the generators of
``bucket_reductions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch

from horovod.common.collective.compression import NoneCompressor
from horovod.common.exceptions import TensorMismatchError
from horovod.common.training.gradient_options import Groups, cut_into_groups, group_name
from horovod.torch.bucket_reductions import after_mismatch, agree, reduce_bucket
from horovod.torch.gradient_hooks import GradientHook, Reduction
from horovod.torch.operations import gradient_reductions
from horovod.torch.tensors import describe
from horovod.torch.wrapping import NamedParameters

_SAMPLES = 8


class Bucket:
    """Parameters whose gradients travel together. ``label``: the name, without the optimizer's prefix.
    ``held``: they do not leave before their optimizer synchronizes. ``users``: how many optimizers step with
    them; ``rounds``: how often they were reduced since there were several.
    """

    __slots__ = (
        "_due",
        "_error",
        "_in_place",
        "_plain",
        "_prefix",
        "_sample",
        "_size",
        "_steps",
        "handle",
        "held",
        "label",
        "members",
        "name",
        "reduction",
        "rounds",
        "users",
    )

    def __init__(
        self, label: str, parameters: Sequence[tuple[str, torch.Tensor]], reduction: Reduction
    ) -> None:
        self.label = label
        self._prefix = reduction.prefix
        self.name = f"{self._prefix}.{label}"
        self.reduction = reduction
        self.members = [GradientHook(name, p, reduction, self.one_more_due) for name, p in parameters]
        self.handle: int | None = None
        self.held = False
        self.users = 1
        self.rounds = 0
        self._due = 0
        self._steps: Iterator[int | bool | None] | None = None
        self._in_place: int | None = None  # the operation that overwrites the gradients
        self._sample: list[str] | None = None  # of gradients that are held
        self._size = 0
        self._error: Exception | None = None
        self._plain = False
        self._note_members()

    @property
    def in_flight(self) -> bool:
        """Whether a reduction was started, or tried, that ``advance`` has not brought to its end."""
        return self.handle is not None or self._steps is not None or self._error is not None

    @property
    def pending(self) -> bool:
        """Whether its gradients are being reduced, or are all due."""
        return self.in_flight or self._due == self._size

    @property
    def nbytes(self) -> int:
        """The size of its gradients, were they all dense."""
        return sum(hook.parameter.numel() * hook.parameter.element_size() for hook in self.members)

    @property
    def touched(self) -> bool:
        """Whether a backward pass has reached a member since the last reduction."""
        return self.in_flight or any(hook.passes_left < self.reduction.passes for hook in self.members)

    @property
    def trained(self) -> bool:
        """Whether some member requires a gradient, or did so when the ranks last agreed on it."""
        return any(hook.trained or hook.parameter.requires_grad for hook in self.members)

    def drop(self, parameter: torch.Tensor) -> None:
        """Takes a member out."""
        self.members = [hook for hook in self.members if hook.parameter is not parameter]
        self._note_members()
        self.reset()

    def one_more_due(self) -> None:
        """A member's gradient is due; the last one sends the bucket off. A failure waits for ``advance``,
        because an exception in a hook would end the backward pass halfway.
        """
        self._due += 1
        if self._due == self._size and not self.held:
            self._send()
        elif self._due == self._size:
            self._sample = self._sampled()
            self._begin()
        else:
            self._begin()

    def submit_incomplete(self) -> None:
        """Sends off a bucket that was held, or of which some gradients never became due: parameters that this
        step did not use take part with zeros, so that all ranks submit the same.
        """
        if not self.in_flight and self.trained:
            self._due = self._size
            self._send()

    def note_changes(self) -> None:
        """Notes gradients that the program has changed. Before any is waited for, which may write to them."""
        if self._in_place is not None:
            changed = gradient_reductions.changed(self._in_place)
        else:
            changed = self._sample is not None and self._sample != self._sampled()
        for hook in self.members:
            hook.note_change(changed)

    def tell(self) -> None:
        """Tells the other ranks what is out of the ordinary, in place of its gradients."""
        self._steps = agree(self.name, self.members, self.reduction)
        next(self._steps, None)

    def advance(self) -> bool:
        """Waits for the operation in flight. True when the result is in the gradients, and the bucket ready
        for the next step; False when another operation was started. Raises what went wrong.
        """
        error = self._error
        try:
            if self.handle is not None:
                self._wait(self.handle)
            if self._steps is not None and next(self._steps, self) is not self:
                return False
        except BaseException:
            self._end_round()
            raise
        self._end_round()
        if error is not None:
            raise error
        if self.reduction.sparse_again:
            for hook in self.members:
                if hook.parameter.grad is not None:
                    hook.parameter.grad = hook.sparse_gradient()
        return True

    def reset(self) -> None:
        """Forgets the reduction in flight and expects the full number of passes again."""
        self.handle = self._error = self._steps = self._in_place = self._sample = None
        self._due = 0
        for hook in self.members:
            hook.passes_left = self.reduction.passes
            hook.sent = None
            if hook.filled:
                hook.unfill()

    def _end_round(self) -> None:
        # What is merely forgotten, as by zero_grad, was not reduced: a step must still send something for it.
        if self.users > 1:
            self.rounds += 1
        self.reset()

    def _begin(self) -> None:
        if not self.reduction.begun:
            with contextlib.suppress(Exception):  # every submission raises it again
                self.reduction.begin()

    def _sampled(self) -> list[str]:
        """A few elements of gradients in host memory. The core looks at those that have left."""
        few = self.members[:: 1 + self._size // _SAMPLES]
        gradients = [hook.parameter.grad for hook in few]
        return [
            str(gradient.detach().view(-1)[gradient.numel() // 2].item())
            for gradient in gradients
            if gradient is not None and gradient.is_cpu and gradient.numel() and gradient.is_contiguous()
        ]

    def _note_members(self) -> None:
        self._size = len(self.members)
        self._plain = self._size == 1 and self.reduction.compressor is NoneCompressor

    def _send(self) -> None:
        try:
            self._submit()
        except Exception as error:
            self._error = _named(error, self.members)

    def _submit(self) -> None:
        hook = self.members[0]
        reduction = self.reduction
        if not reduction.begun:
            reduction.begin()
        elif reduction.refusal is not None:
            raise reduction.refusal
        if self._prefix is not reduction.prefix:
            self._prefix = reduction.prefix
            self.name = f"{self._prefix}.{self.label}"
        parameter = hook.parameter
        gradient = parameter.grad
        simple = self._plain and parameter.requires_grad and hook.trained and not hook.sparse
        simple = simple and not reduction.thawed and (gradient is not None or hook.partial)
        spec = describe(gradient) if simple and gradient is not None else None
        if spec is not None and gradient is not None:
            self.handle = gradient_reductions.start_described(gradient, spec, self.name, reduction.how)
        elif simple and (gradient is None or gradient.layout is torch.strided):
            gradient = hook.dense_gradient()
            self.handle = gradient_reductions.start(gradient, self.name, reduction.how)
        else:
            self._steps = reduce_bucket(self.name, self.members, reduction)
            self._in_place = next(self._steps, None)
            return
        self._in_place = self.handle

    def _wait(self, handle: int) -> None:
        self.handle = self._in_place = None
        try:
            gradient_reductions.finish(handle)
        except TensorMismatchError as error:
            self._steps = after_mismatch(self.name, self.members, self.reduction, error)


def complete_all(buckets: Iterable[Bucket]) -> None:
    """Brings all that is in flight to its end, in rounds, so that the second operations of all travel
    together. Raises the first error after all have been waited for.
    """
    first_error: Exception | None = None
    pending = [bucket for bucket in buckets if bucket.handle is not None or bucket.in_flight]
    while pending:
        unfinished = []
        for bucket in pending:
            try:
                if not bucket.advance():
                    unfinished.append(bucket)
            except Exception as error:
                first_error = first_error or error
        pending = unfinished
    if first_error is not None:
        raise first_error


def _named(error: Exception, members: Sequence[GradientHook]) -> Exception:
    names = ", ".join(repr(hook.name) for hook in members)
    text = f"The gradient of parameter {names} could not be submitted: {error}"
    try:
        named = type(error)(text)
    except TypeError:
        named = RuntimeError(text)
    named.__cause__ = error
    return named


def cut_into_buckets(parameters: NamedParameters, groups: Groups) -> list[tuple[str, NamedParameters]]:
    """Cuts the parameters into buckets, each of one type and one device.

    Args:
        parameters: what is to be cut, with names.
        groups: None = each alone; a number = so many buckets of neighbours; lists of parameters = those, and
            the others each alone.

    Returns:
        Each bucket's name and members.
    """
    wanted, alone = cut_into_groups(parameters, groups, identity_of_member=lambda member: id(member[1]))
    named = [
        (group_name([name for name, _ in members]), members)
        for group in wanted
        for members in _uniform(group)
    ]
    return named + [(name, [(name, parameter)]) for name, parameter in alone]


def _uniform(members: NamedParameters) -> list[NamedParameters]:
    """Cuts members by type and device, in the order of first appearance."""
    parts: dict[tuple[torch.dtype, torch.device], NamedParameters] = {}
    for name, parameter in members:
        parts.setdefault((parameter.dtype, parameter.device), []).append((name, parameter))
    return list(parts.values())
