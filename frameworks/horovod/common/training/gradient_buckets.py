"""Buckets: gradients that travel together, when they leave, and how they come back.

A *pass* is one backward pass over a variable, whose gradient is *due* after the expected number of them. A
*bucket* is one or more variables whose gradients travel as one operation. It leaves when all are due, or with
zeros for those that are not when the optimizer synchronizes. Names and memberships are made once, so that
from the second step on the core knows every submission.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from horovod.common.collective.compression import NoneCompressor
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.training.gradient_reductions import Steps, in_rounds
from horovod.common.training.gradient_status import FROZEN, SPARSE
from horovod.common.training.gradient_variables import Variable

if TYPE_CHECKING:
    from horovod.common.training.gradient_pipeline import Pipeline


class Stage(enum.Enum):
    """How far a bucket is in its step."""

    EMPTY = "no backward pass has reached it"
    FILLING = "some gradients have been made"
    WITHHELD = "it waits until the ranks know of each other's gradients"
    IN_FLIGHT = "a reduction was started, or tried"


class Step(enum.Enum):
    """How far an optimizer is in its step."""

    REST = "no gradient is due"
    IN_PASS = "the backward pass is under way that has made the first one due"
    AFTER_PASS = "it has come to its end"


# Each gradient of each step needs them.
EMPTY, FILLING, WITHHELD, IN_FLIGHT = Stage
PENDING = (WITHHELD, IN_FLIGHT)
REST, IN_PASS, AFTER_PASS = Step


class Bucket(Generic[Tensor]):
    """Variables whose gradients travel together. ``label``: the name, without the optimizer's prefix.
    ``handle``: of the operation in flight that overwrites the gradients, if it is one.
    """

    __slots__ = ("_due", "_is_plain", "_steps", "handle", "label", "members", "name", "pipeline", "stage")

    def __init__(self, label: str, parameters: Sequence[tuple[str, Any]], pipeline: Pipeline[Tensor]) -> None:
        self.label = label
        self.name = f"{pipeline.prefix}.{label}"
        self.pipeline = pipeline
        self.members = [pipeline.variable(name, each, self) for name, each in parameters]
        self.stage = EMPTY
        self.handle: int | None = None
        self._due = 0
        self._steps: Steps | None = None  # what comes next, if it is more than to wait for `handle`
        self._note_members()

    @property
    def is_frozen(self) -> bool:
        """Whether the ranks have agreed that no member is trained."""
        return all(variable.expected == FROZEN for variable in self.members)

    def drop(self, variable: Variable[Tensor]) -> None:
        """Takes a member out, which another optimizer reduces from now on."""
        variable.detach()
        self.members.remove(variable)
        if self.members:
            self._note_members()
            self.reset()
        else:
            self.pipeline.buckets.remove(self)
        self.pipeline.note_buckets()

    def begin_job(self) -> None:
        """The ranks are others."""
        self.name = f"{self.pipeline.prefix}.{self.label}"
        for variable in self.members:
            variable.forget()

    def touch(self) -> None:
        """A backward pass has reached a member."""
        if self.stage is EMPTY:
            self.stage = FILLING

    def one_more_due(self) -> None:
        """A member's gradient is due; the last one sends the bucket off."""
        self._due += 1
        if self._due == len(self.members):
            self.submit()
            return
        self.touch()
        if self.pipeline.stage is REST:
            self.pipeline.begin()

    def submit(self) -> None:
        """Starts the reduction, unless the ranks must hear of its gradients first. A failure waits for
        ``advance``, because an exception in a hook would end the backward pass halfway.
        """
        if self.stage is IN_FLIGHT:
            return
        self.stage = IN_FLIGHT
        pipeline, variable = self.pipeline, self.members[0]
        if pipeline.stage is REST:
            pipeline.begin()
        if pipeline.refusal is not None:
            return
        try:
            # Below SPARSE: it is expected to be dense, or absent in some steps.
            gradient = variable.usual_gradient() if self._is_plain and variable.expected < SPARSE else None
            if gradient is None:
                if all(each.kind & each.expected for each in self.members):
                    self._send()
                else:
                    self.stage = WITHHELD
            elif (spec := pipeline.reductions.describe(gradient)) is not None:
                self.handle = pipeline.reductions.start_described((spec,), gradient, spec[4], self.name)
            else:
                self.handle = pipeline.reductions.start([variable.dense_gradient()], self.name)
        except Exception as error:
            self._steps = _failed(_named(error, self.members))

    def send(self) -> None:
        """Starts the reduction, whatever the gradients are: zeros in place of those that are absent."""
        self.stage = IN_FLIGHT
        try:
            self._send()
        except Exception as error:
            self._steps = _failed(_named(error, self.members))

    def changed(self) -> list[str]:
        """The gradients that the program has changed. To be called before any is waited for, which may write
        to them.
        """
        known = self.handle is not None and self.pipeline.reductions.changed(self.handle)
        return [variable.name for variable in self.members if variable.is_changed(known)]

    def advance(self) -> bool:
        """Waits for the operation in flight. True when the result is in the gradients, and the bucket ready
        for the next step; False when another operation was started. Raises what went wrong.
        """
        is_over = True
        try:
            if self._steps is not None:
                is_over = next(self._steps, self) is self
            elif self.handle is not None:
                self.pipeline.reductions.finish(self.handle)
        except BaseException:
            self.reset()
            raise
        if is_over:
            self.reset()
            if self.pipeline.sparse_again:
                for variable in self.members:
                    variable.make_sparse()
        return is_over

    def reset(self) -> None:
        """Forgets the reduction in flight and expects the full number of passes again."""
        self.stage = EMPTY
        self.handle = self._steps = None
        self._due = 0
        for variable in self.members:
            variable.end_step()

    def release(self) -> None:
        """Its optimizer is gone, and what is in flight is of a step that will not be made."""
        if self.handle is not None:
            self.pipeline.reductions.ops.drop(self.handle)
        for variable in self.members:
            variable.detach()

    def _send(self) -> None:
        self._steps = self.pipeline.reductions.send(self.name, self.members)
        self.handle = next(self._steps, None)

    def _note_members(self) -> None:
        self._is_plain = len(self.members) == 1 and self.pipeline.reductions.compressor is NoneCompressor


def complete_all(buckets: Iterable[Bucket[Any]]) -> None:
    """Brings all that is in flight to its end. Raises the first error after all have been waited for."""
    for _ in in_rounds([bucket.advance for bucket in buckets if bucket.stage is IN_FLIGHT]):
        pass


def _failed(error: Exception) -> Steps:
    """In place of a reduction that could not be started."""
    raise error
    yield


def _named(error: Exception, members: Sequence[Variable[Any]]) -> Exception:
    names = ", ".join(repr(variable.name) for variable in members)
    text = f"The gradient of parameter {names} could not be submitted: {error}"
    try:
        named = type(error)(text)
    except TypeError:
        named = RuntimeError(text)
    named.__cause__ = error
    return named
