"""The gradients of one optimizer: its buckets, what its ranks have agreed on, and one reduction of all; and
which bucket each parameter belongs to, over all optimizers that are alive.

The optimizer that was made last reduces the gradients of its parameters. An older one that trains some of
them too goes on with the buckets of the newer, so that each gradient is reduced once for both, if both reduce
in the same way; otherwise it is *detached*: it reduces nothing any more, and its next step says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from horovod.common.training.agreement import Agreement, Facts, at_construction
from horovod.common.training.gradient_options import Groups
from horovod.torch.buckets import Bucket, complete_all, cut_into_buckets
from horovod.torch.gradient_hooks import Reduction
from horovod.torch.operations import ops
from horovod.torch.wrapping import NamedParameters

_SUBJECT = "DistributedOptimizer"


class GradientReducer:
    """Reduces the gradients of ``parameters``. The ranks compare their ``facts`` first. ``find_added`` tells
    which parameters have come since it was called before. Both are None once the optimizer is gone, whose
    parameters others may train.

    ``added``: those that the ranks have not agreed on yet. ``detached``: a newer optimizer has taken over its
    parameters, and reduces them in another way.
    """

    def __init__(
        self,
        reduction: Reduction,
        parameters: NamedParameters,
        groups: Groups,
        facts: Callable[[], Facts | None],
        find_added: Callable[[], NamedParameters | None],
        copied: bool,
    ) -> None:
        self.reduction = reduction
        self.buckets: list[Bucket] = []
        self.added: NamedParameters = []
        self.detached = False
        self._finish: Callable[[], None] | None = None
        self._look = facts
        self._facts: Facts = {}
        self._find_added = find_added
        self._agreement = Agreement(_SUBJECT, reduction.process_set)
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        self._rounds_seen: dict[Bucket, int] = {}  # of the buckets shared with other optimizers
        self._in_pass = False
        trained = [(name, p) for name, p in parameters if p.requires_grad]
        wanted = cut_into_buckets(trained, groups)
        self._memberships = _memberships(wanted)
        if at_construction() and not copied:
            self._agree()
        reduction.prefix = self._agreement.numbered(_SUBJECT)
        reduction.begin = self._begin
        _owners.append(self)
        _adopt(self, [Bucket(name, members, reduction) for name, members in wanted])

    @property
    def in_flight(self) -> bool:
        """Whether a gradient is being reduced."""
        return any(bucket.in_flight for bucket in self.buckets)

    @property
    def touched(self) -> bool:
        """Whether a backward pass has made a gradient since they were last reduced."""
        return any(bucket.touched or bucket.reduction.held_back for bucket in self.buckets)

    @property
    def pass_failed(self) -> bool:
        """Whether a backward pass has begun to make gradients that are due, and has not come to its end."""
        return self._in_pass

    def finish_in_backward(self, finish: Callable[[], None]) -> None:
        """Calls ``finish`` at the end of every backward pass that has made gradients due."""
        self._finish = finish
        self.reduction.begin_early = True

    def add(self, parameters: NamedParameters) -> None:
        """More parameters, whose gradients are reduced one by one once the ranks have agreed on them: as on
        those that were frozen, and no longer are.
        """
        self._frozen += parameters
        self.added += parameters

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, after submitting what never became due."""
        self._in_pass = False
        if self.detached:
            raise RuntimeError(
                "The parameters of this DistributedOptimizer belong to one that was made later, with other "
                "settings (op, compression, passes, process set ...). Use that one, and drop this one."
            )
        if not self.reduction.begun:
            with contextlib.suppress(Exception):  # it is raised below
                self._begin()
        try:
            buckets = self._not_yet_reduced() if _shared else list(self.buckets)
            for bucket in buckets:
                if bucket.handle is None:
                    bucket.submit_incomplete()
            complete_all(buckets)
            self._tell_additions(buckets)
            if self.reduction.changed or _shared:
                self._tell_changes(buckets)
            self._follow_freezing()
        finally:
            self.reduction.end()
            if _shared or self._rounds_seen:
                self._note_rounds()
        refusal, self.reduction.refusal = self.reduction.refusal, None
        if refusal is not None:
            raise refusal

    def give_up(self) -> bool:
        """After a backward pass that failed: forgets its gradients, on all ranks. False, and nothing done,
        when all of them have been sent to the other ranks already.
        """
        waiting = [bucket for bucket in self.buckets if bucket.trained and not bucket.in_flight]
        if not waiting:
            return False
        self.reduction.failed = True
        for bucket in waiting:
            bucket.tell()
        with contextlib.suppress(Exception):  # that the step was given up
            complete_all(self.buckets)
        self.reset()
        return True

    def reset(self) -> None:
        """Expects a full step's backward passes again. Nothing may be in flight."""
        self._in_pass = False
        self.reduction.end()
        for bucket in self.buckets:
            if not bucket.in_flight:
                bucket.reset()

    def abandon(self) -> None:
        """Waits for what is in flight, whatever comes of it."""
        with contextlib.suppress(Exception):  # of a step that will not be made
            complete_all(self.buckets)
        self.reset()

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a gradient due."""
        self.reduction.passes = passes
        for bucket in self.buckets:  # one that another optimizer made has settings of its own
            bucket.reduction.passes = passes
        for bucket in self.buckets:
            if not bucket.in_flight:
                bucket.reset()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within it, backward passes accumulate only."""
        reductions = {id(bucket.reduction): bucket.reduction for bucket in self.buckets}.values()
        before = [reduction.paused for reduction in reductions]
        for reduction in reductions:
            reduction.paused = True
        try:
            yield
        finally:
            for reduction, paused in zip(reductions, before, strict=True):
                reduction.paused = paused

    def _begin(self) -> None:
        """Before the first submission of a step. Raises what keeps this rank from reducing anything."""
        reduction = self.reduction
        reduction.begun = True
        reduction.refusal = None
        if torch._C._current_graph_task_id() >= 0:
            self._in_pass = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)
        self.add(self._find_added() or [])
        try:
            if not self._agreement.reached:
                self._agree()
                self._train_thawed({name for name, p in self._frozen if p.requires_grad})
                for hook in (hook for bucket in self.buckets for hook in bucket.members):
                    hook.forget()
                reduction.prefix = self._agreement.numbered(_SUBJECT)
        except Exception as error:
            reduction.refusal = error
            raise
        if self._frozen:
            reduction.note_thawed([name for name, p in self._frozen if p.requires_grad])

    def _end_of_pass(self) -> None:
        if torch._C._current_autograd_node() is not None:  # of a pass within another, as for checkpointing
            self.reduction.begun = False  # so that the outer one ends here too
            return
        self._in_pass = False
        if self._finish is not None and self.reduction.begun:
            self._finish()

    def _agree(self) -> None:
        self._facts = self._look() or self._facts
        self._agreement.reach({**self._facts, **self._memberships})

    def _train(self, parameters: NamedParameters) -> None:
        wanted = cut_into_buckets(parameters, None)
        _adopt(self, [Bucket(name, members, self.reduction) for name, members in wanted])

    def _train_thawed(self, names: set[str]) -> None:
        self._train([(name, p) for name, p in self._frozen if name in names])
        self._frozen = [(name, p) for name, p in self._frozen if name not in names]

    def _tell_additions(self, buckets: list[Bucket]) -> None:
        """Of parameters that have come since the first submission of this step. Every bucket tells of them,
        as of changes.
        """
        self.add(self._find_added() or [])
        late = [name for name, p in self.added if p.requires_grad and name not in self.reduction.thawed]
        if late:
            self.reduction.note_thawed([*self.reduction.thawed, *late])
            for bucket in buckets:
                bucket.tell()
            complete_all(buckets)

    def _tell_changes(self, buckets: list[Bucket]) -> None:
        """When the program has changed gradients in flight: raises, on all ranks. Every bucket tells it,
        because a rank that has changed nothing may be one step ahead, with all of them.
        """
        reductions = {id(bucket.reduction): bucket.reduction for bucket in buckets}.values()
        if any(reduction.changed for reduction in reductions):
            for bucket in buckets:
                bucket.tell()
            try:
                complete_all(buckets)
            finally:
                for reduction in reductions:
                    reduction.changed = []

    def _follow_freezing(self) -> None:
        """After the ranks have agreed on it: parameters that are trained no longer, or are trained again."""
        if self.reduction.froze:
            self.reduction.froze = False
            for bucket in [bucket for bucket in self.buckets if not bucket.trained]:
                self._frozen += [(hook.name, hook.parameter) for hook in bucket.members]
                _retire(self, bucket)
        thawed = set(self.reduction.thawed)
        if thawed:
            before = len(self.buckets)
            self._train_thawed(thawed)
            self.reduction.note_thawed([])
            for bucket in self.buckets[before:]:
                bucket.submit_incomplete()
            complete_all(self.buckets)
        self.added = []

    def _not_yet_reduced(self) -> list[Bucket]:
        """All buckets, less those that another optimizer has reduced since this one's last step: all that
        both use, or none, because a backward pass makes all of their gradients.
        """
        common = [bucket for bucket in self.buckets if bucket in _shared]
        touched = {id(bucket.reduction) for bucket in common if bucket.touched}
        done = {
            bucket
            for bucket in common
            if id(bucket.reduction) not in touched and bucket.rounds != self._rounds_seen.get(bucket, 0)
        }
        return [bucket for bucket in self.buckets if bucket not in done]

    def _note_rounds(self) -> None:
        self._rounds_seen = {bucket: bucket.rounds for bucket in _shared.intersection(self.buckets)}


def _memberships(wanted: list[tuple[str, NamedParameters]]) -> dict[str, str]:
    return {
        f"group {name!r}": ", ".join(label for label, _ in members)
        for name, members in wanted
        if len(members) > 1
    }


_by_parameter: dict[int, Bucket] = {}
_owners: list[GradientReducer] = []

_shared: set[Bucket] = set()
"""The buckets that several optimizers step with."""


def _adopt(owner: GradientReducer, buckets: list[Bucket]) -> None:
    """Gives ``owner`` new buckets, and them their parameters, whichever buckets they belonged to before."""
    former = {before for new in buckets for hook in new.members if (before := bucket_of(hook.parameter))}
    with contextlib.suppress(Exception):  # what is in flight is of a step that its optimizer will not make
        complete_all(former)
    older = [(other, found) for other in _owners if (found := _taken_from(other, buckets))]
    owner.buckets += buckets
    for bucket in buckets:
        for hook in bucket.members:
            _take_over(hook.parameter)
            _by_parameter[id(hook.parameter)] = bucket
            hook.registration = hook.parameter.register_post_accumulate_grad_hook(hook)
    for other, found in older:
        if other is not owner:
            _follow(other, owner, found)


def release(owner: GradientReducer) -> None:
    """For an optimizer that is gone: otherwise the parameters would go on reporting to it."""
    if owner in _owners:
        _owners.remove(owner)
    for bucket in owner.buckets:
        _leave(bucket)
    owner.buckets.clear()


def _retire(owner: GradientReducer, bucket: Bucket) -> None:
    """Takes a bucket from ``owner``, because its parameters are no longer trained."""
    owner.buckets.remove(bucket)
    _leave(bucket)


def bucket_of(parameter: object) -> Bucket | None:
    """The bucket that reduces the gradient of ``parameter``."""
    return _by_parameter.get(id(parameter))


def _taken_from(older: GradientReducer, buckets: list[Bucket]) -> list[Bucket]:
    """Those of the new ``buckets`` that take parameters from ``older``."""
    own = set(older.buckets)
    return [bucket for bucket in buckets if any(bucket_of(hook.parameter) in own for hook in bucket.members)]


def _take_over(parameter: Any) -> None:
    before = bucket_of(parameter)
    if before is None:
        return
    for hook in before.members:
        if hook.parameter is parameter and hook.registration is not None:
            hook.registration.remove()
    before.drop(parameter)


def _follow(older: GradientReducer, newer: GradientReducer, buckets: list[Bucket]) -> None:
    """``older`` has lost parameters to ``buckets``."""
    if not older.reduction.same_as(newer.reduction):
        older.detached = True
        release(older)
        return
    for empty in [bucket for bucket in older.buckets if not bucket.members]:
        older.buckets.remove(empty)
        _shared.discard(empty)
    for bucket in buckets:
        older.buckets.append(bucket)
        bucket.users += 1
        _shared.add(bucket)


def _leave(bucket: Bucket) -> None:
    bucket.users -= 1
    if bucket.users <= 1:
        _shared.discard(bucket)
    if bucket.users == 0:
        if bucket.handle is not None:  # of a step that will not be made
            ops.drop(bucket.handle)
        for hook in bucket.members:
            del _by_parameter[id(hook.parameter)]
            if hook.registration is not None:
                hook.registration.remove()
