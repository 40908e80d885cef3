"""Buckets: gradients that travel together, when they leave, and how they come back.

A *pass* is one backward pass over a variable. A gradient is *due* when the expected number of passes has been
made; a *bucket* is one or more variables whose gradients are submitted as one operation, when all of them are
due. Names and memberships are made once, so that from the second step on the core knows every submission.

A rank with news sends a notice in place of the bucket's operation, which then takes place nowhere. All ranks
hear of it, send each other their status where the notices do not say it all (see ``gradient_status``), and
then reduce what is left to reduce.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from horovod.common.collective.compression import NoneCompressor
from horovod.common.collective.exchange import in_rounds
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.exceptions import Notice
from horovod.common.training.gradient_options import Groups, cut_into_groups
from horovod.common.training.gradient_reductions import Steps, Unsent
from horovod.common.training.gradient_status import (
    ALL_DROPPED,
    DENSE,
    FROZEN,
    NO_NEWS,
    SAY_IT_ALL,
    SPARSE,
    STATUS_FOLLOWS,
    UNSENT,
    Status,
    decoded,
    encoded,
    found_kinds,
    notice_of,
)
from horovod.common.training.gradient_variables import REST, Variable

if TYPE_CHECKING:
    from horovod.common.training.gradient_reducer import Reducer

_T = TypeVar("_T")
_SAMPLES = 8


class Stage(enum.Enum):
    """How far a bucket is in its step."""

    EMPTY = "no backward pass has reached it"
    FILLING = "some gradients have been made"
    FULL = "all gradients are due, and held until the optimizer synchronizes"
    IN_FLIGHT = "a reduction was started, or tried"


# Each gradient of each step needs them.
EMPTY, FILLING, FULL, IN_FLIGHT = Stage
PENDING = (FULL, IN_FLIGHT)


class Bucket(Generic[Tensor]):
    """Variables whose gradients travel together. ``label``: the name, without the optimizer's prefix.
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

    def __init__(
        self,
        label: str,
        parameters: Sequence[tuple[str, Any]],
        reducer: Reducer[Tensor],
    ) -> None:
        self.label = label
        self.name = f"{reducer.prefix}.{label}"
        self.reducer = reducer
        self.members = [reducer.variable(name, each, self) for name, each in parameters]
        self.stage = EMPTY
        self.handle: int | None = None
        self.held = False
        self.users = 1
        self.rounds = 0
        self._due = 0
        self._sample: list[str] = []  # of gradients that are held
        self._steps: Steps | None = None  # what comes next, if it is more than to wait for `handle`
        self._note_members()

    @property
    def nbytes(self) -> int:
        """The size of its gradients, were they all dense."""
        return sum(variable.nbytes for variable in self.members)

    @property
    def is_trained(self) -> bool:
        """Whether some member requires a gradient, or did so when the ranks last agreed on it."""
        return any(variable.expected != FROZEN or variable.is_trained for variable in self.members)

    def drop(self, parameter: Any) -> None:
        """Takes a member out."""
        self.members = [variable for variable in self.members if variable.parameter is not parameter]
        self._note_members()
        self.reset()

    def begin_job(self) -> None:
        """The ranks know nothing of each other."""
        self.name = f"{self.reducer.prefix}.{self.label}"
        for variable in self.members:
            variable.forget()

    def touch(self) -> None:
        """A backward pass has reached a member."""
        if self.stage is EMPTY:
            self.stage = FILLING

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
            self.stage = FULL
            self._sample = self._sampled()

    def submit(self) -> None:
        """Starts the reduction. A failure waits for ``advance``, because an exception in a hook would end the
        backward pass halfway. The other ranks are told of it, and give the step up too.
        """
        self.stage = IN_FLIGHT
        reducer, reductions, variable = self.reducer, self.reducer.reductions, self.members[0]
        try:
            if reducer.stage is REST:
                reducer.begin()
            elif reducer.refusal is not None:
                raise reducer.refusal
            # Below SPARSE: it is expected to be dense, or absent in some steps.
            is_usual = self._is_plain and variable.expected < SPARSE and reducer.news is NO_NEWS
            gradient = variable.usual_gradient() if is_usual else None
            if gradient is None:
                self._take(self._steps_to_go())
            elif (spec := reductions.describe(gradient)) is not None:
                self.handle = reductions.start_described((spec,), gradient, spec[4], self.name)
            else:
                self.handle = reductions.start([variable.dense_gradient()], self.name)
        except Exception as error:
            self._take(self._failed(error))
        except BaseException as error:  # of a signal handler: nobody knows what it has left undone
            self._take(self._failed(RuntimeError(f"{type(error).__name__} came in between")))
            raise

    def submit_incomplete(self) -> None:
        """Sends off a bucket that was held, or of which some gradients never became due: parameters that this
        step did not use take part with zeros, so that all ranks submit the same.
        """
        if self.stage is not IN_FLIGHT and self.is_trained:
            self.submit()

    def tell(self) -> None:
        """Tells the other ranks the news of this one, in place of gradients that have not left."""
        if self.stage is not IN_FLIGHT and self.is_trained:
            self.stage = IN_FLIGHT
            self._take(self._steps_to_go())

    def changed(self) -> list[str]:
        """The gradients that the program has changed. To be called before any is waited for, which may write
        to them.
        """
        known = self._sample != (self._sampled() if self._sample else [])
        if self.handle is not None:
            known = self.reducer.reductions.changed(self.handle)
        return [variable.name for variable in self.members if variable.is_changed(known)]

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
            self.reset()
            raise
        if is_over:
            # What is dropped or forgotten was not reduced: a step must still send something for it.
            if self.users > 1 and not self.reducer.news.given_up:
                self.rounds += 1
            self.reset()
            if self.reducer.sparse_again:
                for variable in self.members:
                    variable.make_sparse()
        return is_over

    def reset(self) -> None:
        """Forgets the reduction in flight and expects the full number of passes again."""
        self.stage = EMPTY
        self.handle = self._steps = None
        self._sample = []
        self._due = 0
        for variable in self.members:
            variable.end_step()

    def drop_operation(self) -> None:
        """What is in flight is of a step that will not be made."""
        if self.handle is not None:
            self.reducer.reductions.ops.drop(self.handle)

    def _note_members(self) -> None:
        self._is_plain = len(self.members) == 1 and self.reducer.reductions.compressor is NoneCompressor

    def _take(self, steps: Steps) -> None:
        self._steps = steps
        self.handle = next(steps, None)

    def _wait(self) -> bool:
        try:
            if self.handle is not None:
                self.reducer.reductions.finish(self.handle)
        except Notice as notice:
            self._take(self._steps_to_go(notice))
            return False
        return True

    def _sampled(self) -> list[str]:
        """A few elements of gradients. The core looks at those that have left."""
        few = self.members[:: 1 + len(self.members) // _SAMPLES]
        return [sample for variable in few if (sample := variable.sample()) is not None]

    def _steps_to_go(self, notice: Notice | None = None) -> Steps:
        """The reduction where it takes more than one operation, or more than memory to send. ``notice``: what
        came in place of the usual operation, if that was tried.
        """
        if notice is None and self._has_news():
            kinds = [variable.kind for variable in self.members]
            notice = yield from self._notice(notice_of(kinds, self.reducer.news))
        while notice is None or (yield from self._hear(notice)):
            try:
                yield from self.reducer.reductions.send(self.name, self.members)
                return
            except Unsent as unsent:
                yield from self._give_up(unsent.why)
            except Notice as another:
                notice = another

    def _failed(self, error: Exception) -> Steps:
        """In place of an operation that could not be started. Where nothing may be submitted no rank does."""
        yield None
        if self.reducer.refusal is None:
            with contextlib.suppress(Exception):  # the job is over: the others know
                yield from self._notice(STATUS_FOLLOWS)
                yield from self._give_up(error)
        raise _named(error, self.members)

    def _give_up(self, error: Exception) -> Steps:
        """All ranks have heard that one of them, this one, could not send its part."""
        self.reducer.give_step_up(UNSENT)
        with contextlib.suppress(Exception):
            handle = self._start_telling()
            yield None
            self._heard(handle)
        raise _named(error, self.members)

    def _notice(self, bits: int) -> Generator[int | None, None, Notice]:
        reductions = self.reducer.reductions
        handle = reductions.ops.start_notice(self.name, bits, reductions.process_set)
        yield None
        try:
            reductions.ops.synchronize(handle)
        except Notice as notice:
            return notice
        raise AssertionError("a notice is always heard")

    def _hear(self, notice: Notice) -> Generator[int | None, None, bool]:
        """Some rank has news, or all have. Returns whether any has a gradient."""
        found: list[int] | None = [notice.bits]
        if notice.bits not in SAY_IT_ALL:
            handle = self._start_telling()
            yield None
            found = found_kinds([variable.name for variable in self.members], self._heard(handle))
        elif notice.bits == ALL_DROPPED:
            found = None
        return found is not None and self._learn(found)

    def _has_news(self) -> bool:
        is_told = self.reducer.take_news()
        return is_told or any(not variable.kind & variable.expected for variable in self.members)

    def _start_telling(self) -> int:
        reductions = self.reducer.reductions
        status = encoded([variable.kind for variable in self.members], self.reducer.news)
        message: Any = reductions.ops.glue.from_bytes(status)
        return reductions.ops.allgather_async(message, f"{self.name}.status", reductions.process_set)

    def _heard(self, handle: int) -> dict[int, Status]:
        ops = self.reducer.reductions.ops
        return decoded(ops.glue.to_bytes(ops.synchronize(handle)))

    def _learn(self, found: list[int]) -> bool:
        """The kinds that the ranks have for each member. Returns whether any has a gradient."""
        for variable, kinds in zip(self.members, found, strict=True):
            variable.learn(kinds)
            self.reducer.found |= kinds
        return any(kinds & (DENSE | SPARSE) for kinds in found)


def _named(error: Exception, members: Sequence[Variable[Any]]) -> Exception:
    names = ", ".join(repr(variable.name) for variable in members)
    text = f"The gradient of parameter {names} could not be submitted: {error}"
    try:
        named = type(error)(text)
    except Exception:
        named = RuntimeError(text)
    named.__cause__ = error
    return named


def complete_all(buckets: Iterable[Bucket[Any]]) -> None:
    """Brings all that is in flight to its end. Raises the first error after all have been waited for."""
    for _ in in_rounds([bucket.advance for bucket in buckets if bucket.stage is IN_FLIGHT]):
        pass


def cut_into_buckets(
    members: Sequence[_T],
    groups: Groups,
    kind: Callable[[_T], Hashable],
    identity: Callable[[Any], int] = id,
    identity_of_member: Callable[[_T], int] = id,
) -> list[list[_T]]:
    """Those of ``members`` that travel together, the groups first, then what travels alone.

    Args:
        members: what is to be cut.
        groups: as ``cut_into_groups`` takes them.
        kind: type and device of a member: one operation has one of each, so groups are cut by them.
        identity: what the lists of ``groups`` hold.
        identity_of_member: which of it a member is.

    Returns:
        The buckets.
    """
    together, alone = cut_into_groups(members, groups, identity, identity_of_member)
    buckets: list[list[_T]] = []
    for group in together:
        parts: dict[Hashable, list[_T]] = {}
        for member in group:
            parts.setdefault(kind(member), []).append(member)
        buckets += parts.values()
    return buckets + [[member] for member in alone]
