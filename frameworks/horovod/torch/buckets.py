"""Gradients that travel together: when they leave, and how they come back.

A *pass* is one backward pass over a parameter. A gradient is *due* when the expected number of passes has
been made; a *bucket* is one or more parameters whose gradients are submitted as one operation, when all of
them are due. Names and memberships are made once, so that from the second step on the core knows every
submission. A dense gradient alone is handled here; whatever takes more, by ``bucket_reductions``.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from horovod.common.collective.compression import NoneCompressor
from horovod.common.exceptions import TensorMismatchError
from horovod.common.training.gradient_buckets import cut_into_buckets, in_rounds
from horovod.common.training.gradient_options import Groups, group_name
from horovod.common.training.gradient_status import FROZEN, NO_NEWS, SPARSE
from horovod.torch.bucket_reductions import Steps, failed, reduce_bucket
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.operations import gradient_reductions, ops
from horovod.torch.tensors import describe
from horovod.torch.wrapping import NamedParameters

if TYPE_CHECKING:
    from horovod.torch.gradient_reducer import GradientReducer

_SAMPLES = 8


class Stage(enum.Enum):
    """How far a bucket is in its step."""

    EMPTY = "no backward pass has reached it"
    FILLING = "some gradients have been made"
    FULL = "all gradients are due, and held until the optimizer synchronizes"
    IN_FLIGHT = "a reduction was started, or tried"


class Step(enum.Enum):
    """How far an optimizer is in its step."""

    REST = "no gradient is due"
    IN_PASS = "the backward pass is under way that has made the first one due"
    AFTER_PASS = "it has come to its end"


REST, IN_PASS, AFTER_PASS = Step
_EMPTY, _FILLING, _FULL, _IN_FLIGHT = Stage  # each gradient of each step needs them


class Bucket:
    """Parameters whose gradients travel together. ``label``: the name, without the optimizer's prefix.
    ``held``: they do not leave before their optimizer synchronizes. ``handle``: of the operation that
    overwrites the gradients, if it is one. ``users``: how many optimizers step with them; ``rounds``: how
    often they were reduced since there were several.
    """

    __slots__ = (
        "_due",
        "_is_plain",
        "_sample",
        "_steps",
        "handle",
        "held",
        "label",
        "members",
        "name",
        "reducer",
        "rounds",
        "stage",
        "users",
    )

    def __init__(self, label: str, parameters: NamedParameters, reducer: GradientReducer) -> None:
        self.label = label
        self.name = f"{reducer.prefix}.{label}"
        self.reducer = reducer
        self.members = [GradientHook(name, p, self) for name, p in parameters]
        self.stage = _EMPTY
        self.handle: int | None = None
        self.held = False
        self.users = 1
        self.rounds = 0
        self._due = 0
        self._sample: list[str] = []  # of gradients that are held
        self._steps: Steps | None = None  # what comes next, if it is more than to wait for `handle`
        self._note_members()

    @property
    def in_flight(self) -> bool:
        """Whether a reduction was started, or tried, that ``advance`` has not brought to its end."""
        return self.stage is _IN_FLIGHT

    @property
    def pending(self) -> bool:
        """Whether its gradients are being reduced, or are all due."""
        return self.stage is _IN_FLIGHT or self.stage is _FULL

    @property
    def touched(self) -> bool:
        """Whether a backward pass has reached a member since the last reduction."""
        return self.stage is not _EMPTY

    @property
    def nbytes(self) -> int:
        """The size of its gradients, were they all dense."""
        return sum(hook.parameter.numel() * hook.parameter.element_size() for hook in self.members)

    @property
    def is_trained(self) -> bool:
        """Whether some member requires a gradient, or did so when the ranks last agreed on it."""
        return any(hook.expected != FROZEN or hook.parameter.requires_grad for hook in self.members)

    def drop(self, parameter: torch.Tensor) -> None:
        """Takes a member out."""
        self.members = [hook for hook in self.members if hook.parameter is not parameter]
        self._note_members()
        self.reset()

    def begin_job(self) -> None:
        """The ranks are others."""
        self.name = f"{self.reducer.prefix}.{self.label}"
        for hook in self.members:
            hook.forget()

    def touch(self) -> None:
        """A backward pass has reached a member."""
        if self.stage is _EMPTY:
            self.stage = _FILLING

    def one_more_due(self) -> None:
        """A member's gradient is due; the last one sends the bucket off."""
        self._due += 1
        if self._due == len(self.members) and not self.held:
            self.submit()
            return
        if self.reducer.stage is REST:
            with contextlib.suppress(Exception):  # every submission raises it again
                self.reducer.begin()
        if self._due < len(self.members):
            self.touch()
        else:
            self.stage = _FULL
            self._sample = self._sampled()

    def submit(self) -> None:
        """Starts the reduction. A failure waits for ``advance``, because an exception in a hook would end the
        backward pass halfway.
        """
        self.stage = _IN_FLIGHT
        reducer, hook = self.reducer, self.members[0]
        gradient = hook.parameter.grad
        try:
            if reducer.stage is REST:
                reducer.begin()
            elif reducer.refusal is not None:
                raise reducer.refusal
            # What is expected of it is that it is dense, or absent in some steps.
            is_usual = gradient is not None and hook.expected < SPARSE and hook.parameter.requires_grad
            if gradient is not None and is_usual and self._is_plain and reducer.news is NO_NEWS:
                spec = describe(gradient)
                if spec is not None:
                    start = gradient_reductions.start_described
                    self.handle = start((spec,), gradient, spec[4], self.name, reducer.how)
                    return
                if gradient.layout is torch.strided:
                    self.handle = gradient_reductions.start([hook.dense_gradient()], self.name, reducer.how)
                    return
            self._take(reduce_bucket(self))
        except Exception as error:
            self._steps = failed(_named(error, self.members))

    def submit_incomplete(self) -> None:
        """Sends off a bucket that was held, or of which some gradients never became due: parameters that this
        step did not use take part with zeros, so that all ranks submit the same.
        """
        if self.stage is not _IN_FLIGHT and self.is_trained:
            self.submit()

    def tell(self) -> None:
        """Tells the other ranks the news of this one, in place of gradients that have not left."""
        if self.stage is not _IN_FLIGHT and self.is_trained:
            self.stage = _IN_FLIGHT
            self._take(reduce_bucket(self))

    def changed(self) -> list[str]:
        """The gradients that the program has changed. To be called before any is waited for, which may write
        to them.
        """
        known = self._sample != (self._sampled() if self._sample else [])
        if self.handle is not None:
            known = gradient_reductions.changed(self.handle)
        return [hook.name for hook in self.members if hook.is_changed(known)]

    def advance(self) -> bool:
        """Waits for the operation in flight. True when the result is in the gradients, and the bucket ready
        for the next step; False when another operation was started. Raises what went wrong.
        """
        try:
            if self._steps is not None:
                is_over = next(self._steps, self) is self
            else:
                is_over = self._wait()
        except BaseException:
            self._end_round()
            raise
        if is_over:
            self._end_round()
            if self.reducer.sparse_again:
                for hook in self.members:
                    if hook.parameter.grad is not None:
                        hook.parameter.grad = hook.sparse_gradient()
        return is_over

    def reset(self) -> None:
        """Forgets the reduction in flight and expects the full number of passes again."""
        self.stage = _EMPTY
        self.handle = self._steps = None
        self._sample = []
        self._due = 0
        for hook in self.members:
            hook.end_step()

    def drop_operation(self) -> None:
        """What is in flight is of a step that will not be made."""
        if self.handle is not None:
            ops.drop(self.handle)

    def _end_round(self) -> None:
        # What is merely forgotten, as by zero_grad, was not reduced: a step must still send something for it.
        if self.users > 1:
            self.rounds += 1
        self.reset()

    def _note_members(self) -> None:
        self._is_plain = len(self.members) == 1 and self.reducer.compressor is NoneCompressor

    def _take(self, steps: Steps) -> None:
        self._steps = steps
        self.handle = next(steps, None)

    def _wait(self) -> bool:
        try:
            if self.handle is not None:
                gradient_reductions.finish(self.handle)
        except TensorMismatchError as error:
            self.handle = None
            self._take(reduce_bucket(self, error))
            return False
        return True

    def _sampled(self) -> list[str]:
        """A few elements of gradients in host memory. The core looks at those that have left."""
        few = self.members[:: 1 + len(self.members) // _SAMPLES]
        gradients = [hook.parameter.grad for hook in few]
        return [
            str(gradient.detach().view(-1)[gradient.numel() // 2].item())
            for gradient in gradients
            if gradient is not None and gradient.is_cpu and gradient.numel() and gradient.is_contiguous()
        ]


def complete_all(buckets: Iterable[Bucket]) -> None:
    """Brings all that is in flight to its end. Raises the first error after all have been waited for."""
    for _ in in_rounds([bucket.advance for bucket in buckets if bucket.stage is _IN_FLIGHT]):
        pass


def _named(error: Exception, members: Sequence[GradientHook]) -> Exception:
    names = ", ".join(repr(hook.name) for hook in members)
    text = f"The gradient of parameter {names} could not be submitted: {error}"
    try:
        named = type(error)(text)
    except TypeError:
        named = RuntimeError(text)
    named.__cause__ = error
    return named


def cut_parameters(parameters: NamedParameters, groups: Groups) -> list[tuple[str, NamedParameters]]:
    """Each bucket's name and members, of one type and one device. ``groups``: lists of parameters, or a
    number.
    """
    buckets = cut_into_buckets(
        parameters, groups, lambda each: (each[1].dtype, each[1].device), id, lambda each: id(each[1])
    )
    return [(group_name([name for name, _ in members]), members) for members in buckets]
