"""What all buckets of one optimizer share: how far its step is, what the ranks must hear of it, and one
reduction of all.

One bucket is *held*: it leaves when the optimizer synchronizes, and not before. Until then no rank has made
its step, and one that has met something out of the ordinary, such as gradients that the program has changed,
can tell the others in place of that bucket's gradients. No message is spent on it otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Generic

from horovod.common.basics import rank
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.training.gradient_buckets import (
    EMPTY,
    FILLING,
    FULL,
    IN_FLIGHT,
    PENDING,
    Bucket,
    complete_all,
)
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_status import ABSENT, DROPPED, FAILED, NO_NEWS, check_changed
from horovod.common.training.gradient_variables import AFTER_PASS, IN_PASS, REST, Variable
from horovod.common.training.presence import Presence


class Reducer(Generic[Tensor]):
    """Reduces the gradients of one optimizer, bucket by bucket. A framework adds where steps begin and end.

    ``prefix``: begins the names of the operations. ``passes``: how many make a gradient due. While
    ``paused``, passes accumulate only. ``stage``: how far the present step is; REST until the first gradient
    is due. ``refusal``: why nothing may be submitted in it. ``news``: what the other ranks must hear of it.
    ``found``: the kinds of gradients that the ranks have told each other of, as bits. ``sparse_again``:
    gradients that travel as dense ones are sparse afterwards.
    """

    prefix = ""

    def __init__(
        self, reductions: GradientReductions[Tensor], settings: GradientSettings, wants_sparse: bool
    ) -> None:
        self.reductions = reductions
        self.sparse_as_dense = settings.sparse_as_dense or reductions.is_stateful
        self.sparse_again = wants_sparse and self.sparse_as_dense
        self.passes = settings.backward_passes_per_step
        self.paused = False
        self.stage = REST
        self.refusal: Exception | None = None
        self.news = NO_NEWS
        self.found = 0
        self.buckets: list[Bucket[Tensor]] = []
        self._versions: dict[Bucket[Tensor], tuple[int, list[int]]] = {}
        self._untold = False  # of `news`, what is thawed

    def begin(self) -> None:
        """Before the first submission of a step. Raises what keeps this rank from reducing anything."""
        raise NotImplementedError

    @property
    def has_agreed(self) -> bool:
        """Whether the ranks have agreed on what they reduce, in this job."""
        raise NotImplementedError

    def variable(self, name: str, parameter: Any, bucket: Bucket[Tensor]) -> Variable[Tensor]:
        """A new member of a bucket."""
        raise NotImplementedError

    @property
    def pending(self) -> bool:
        """Whether gradients are being reduced, or are due, and no backward pass is under way."""
        return self.stage is not IN_PASS and any(bucket.stage in PENDING for bucket in self.buckets)

    @property
    def touched(self) -> bool:
        """Whether a backward pass has made a gradient since they were last reduced."""
        return any(bucket.stage is not EMPTY for bucket in self.buckets)

    def take_news(self) -> bool:
        """Whether the next bucket must tell the other ranks of ``news``: of what is thawed, one does."""
        untold, self._untold = self._untold, False
        return untold or bool(self.news.changed or self.news.given_up)

    def forget_gradients(self) -> None:
        """The program drops the gradients. Those that are being reduced are waited for; all ranks must drop
        them, except after a backward pass that has failed, when the others give their step up.

        Raises:
            RuntimeError: other ranks make a step of them; on those, too.
            AssertionError: this one seems to have made a step of them before they were reduced.
        """
        reached = [bucket for bucket in self.buckets if bucket.stage is not EMPTY]
        has_failed = any(bucket.reducer.stage is IN_PASS for bucket in reached)
        if has_failed or any(bucket.stage in PENDING for bucket in reached):
            if has_failed:
                with contextlib.suppress(Exception):  # that the step was given up
                    self.tell(self.buckets, given_up=FAILED)
            elif self._moved():
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                    "optimizer.synchronize(), and the parameters were changed meanwhile, by gradients that "
                    "were not reduced yet. Make steps by the DistributedOptimizer, or call its synchronize() "
                    "before anything else uses the gradients."
                )
            else:
                self.tell(self.buckets, given_up=DROPPED)
        self.reset()

    def drop_old(self) -> bool:
        """In a backward pass that makes gradients again: whether the program has dropped all those that are
        being reduced, and made no step of them. They are waited for, as by ``forget_gradients``.
        """
        made = self._made()
        pending = [bucket for bucket in made if bucket.stage in PENDING]
        kept = any(variable.holds_sent for bucket in pending for variable in bucket.members)
        if kept or self.stage is IN_PASS or self._moved():
            return False
        self.tell(made, given_up=DROPPED)
        self._expect_passes(made)
        return True

    def begin_next_pass(self, variable: Variable[Tensor]) -> None:
        """A backward pass has made the gradient of ``variable`` while others of a pass before are due, which
        the program may have dropped: then they are no part of this step.
        """
        members = [each for bucket in self._made() for each in bucket.members]
        was_due = not variable.passes_left or any(each.sent is not None for each in members)
        is_kept = any(each.holds_sent for each in members)
        if is_kept or not was_due or not self.drop_old():
            self.note_pass()

    def note_pass(self) -> None:
        """A backward pass is under way."""
        raise NotImplementedError

    def reset(self) -> None:
        """Expects a full step's backward passes again. Nothing may be in flight."""
        self._expect_passes(self.buckets)

    def _expect_passes(self, buckets: list[Bucket[Tensor]]) -> None:
        self.end_step()
        for bucket in buckets:
            if bucket.stage is FILLING or bucket.stage is FULL:
                bucket.reset()

    def _made(self) -> list[Bucket[Tensor]]:
        """Its buckets without those of a newer optimizer, which may be in a step of that one."""
        return [bucket for bucket in self.buckets if bucket.reducer is self]

    def abandon(self) -> None:
        """Ends the step, which will not be made, on all ranks."""
        self.give_up(self.buckets)
        self.reset()

    def give_up(self, buckets: list[Bucket[Tensor]]) -> None:
        """Ends what is in flight of a step that will not be made, whatever comes of it. Where a bucket has
        left on some ranks and waits on others, these must tell the former.
        """
        in_step = any(bucket.stage in PENDING for bucket in buckets)
        with contextlib.suppress(Exception):
            if in_step and all(reducer.has_agreed for reducer in makers_of(buckets)):
                self.tell(buckets, given_up=FAILED if self.stage is IN_PASS else DROPPED)
            else:
                complete_all(buckets)

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a gradient due."""
        for reducer in {self, *makers_of(self.buckets)}:
            reducer.passes = passes
        for bucket in self.buckets:
            if bucket.stage is not IN_FLIGHT:
                bucket.reset()

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Within it, backward passes accumulate only."""
        before = {reducer: reducer.paused for reducer in makers_of(self.buckets)}
        for reducer in before:
            reducer.paused = True
        try:
            yield
        finally:
            for reducer, paused in before.items():
                reducer.paused = paused

    def begin_step(self) -> None:
        """The first gradient of a step is due."""
        self.stage = AFTER_PASS
        self.refusal = None
        self._versions = self._held_versions()

    def end_step(self) -> None:
        """The step is over."""
        self.stage = REST
        self.news = NO_NEWS
        self._untold = False

    def note_thawed(self, names: Iterable[str]) -> None:
        """Variables are trained from this step on: the next bucket that is submitted tells the others."""
        self._set_news(thawed=sorted(names))
        self._untold = bool(self.news.thawed)

    def _set_news(self, **told: Any) -> None:
        changed = self.news._replace(**told)
        self.news = changed if any(changed) else NO_NEWS

    def _held_versions(self) -> dict[Bucket[Tensor], tuple[int, list[int]]]:
        held = [bucket for bucket in self.buckets if bucket.held]
        return {bucket: (bucket.rounds, [each.version for each in bucket.members]) for bucket in held}

    def _moved(self) -> bool:
        """Whether parameters were changed since the first gradient of this step was due, and not by another
        optimizer, which has reduced them.
        """
        now = self._held_versions()
        return self.stage is not REST and any(
            now.get(bucket, then) != then and now[bucket][0] == then[0]
            for bucket, then in self._versions.items()
        )

    def give_step_up(self, reason: str) -> None:
        """All that is still sent in this step tells the other ranks that this one makes no step."""
        self._set_news(given_up=reason)

    def tell(self, buckets: list[Bucket[Tensor]], **told: Any) -> None:
        """Tells the other ranks what is out of the ordinary, in place of the gradients that have not left."""
        reducers = makers_of(buckets)
        for reducer in reducers:
            reducer._set_news(**told)
        try:
            for bucket in buckets:
                bucket.tell()
            complete_all(buckets)
        finally:
            for reducer in reducers:
                reducer._set_news(changed=(), given_up="")

    def check_unchanged(self, buckets: list[Bucket[Tensor]]) -> None:
        """When the program has changed gradients in flight: raises, on all ranks. They hear of it by the
        buckets that have not left yet, of which there is one at least.
        """
        changed = [name for bucket in buckets for name in bucket.changed()]
        if changed:
            self.tell(buckets, changed=changed)
            check_changed({rank(): changed})

    def reduce_all(self, buckets: list[Bucket[Tensor]]) -> set[Variable[Tensor]]:
        """Brings the reductions of all to their end; returns for what this step had made no gradient."""
        missing: set[Variable[Tensor]] = set()
        for bucket in buckets:
            if bucket.handle is None or bucket.reducer.found & ABSENT:
                missing.update(variable for variable in bucket.members if variable.is_missing)
            if bucket.handle is None:
                bucket.submit_incomplete()
        try:
            complete_all(buckets)
        except Exception:  # told by now; the next step of these is perhaps another optimizer's
            for reducer in makers_of(buckets):
                reducer._set_news(given_up="")
            raise
        return missing

    def take_back_zeros(self, buckets: list[Bucket[Tensor]], missing: set[Variable[Tensor]]) -> None:
        """Leaves parameters that no rank has a gradient for without one, so that no step moves them."""
        # A rank that has come later has made its buckets in another order.
        in_order = sorted(buckets, key=lambda bucket: bucket.name)
        partial = [
            variable for bucket in in_order for variable in bucket.members if variable.expected & ABSENT
        ]
        if partial:
            reductions = self.reductions
            presence = Presence(reductions.ops, f"{self.prefix}.present", reductions.process_set)
            somewhere = presence.finish(presence.start(variable not in missing for variable in partial))
            for variable, present in zip(partial, somewhere, strict=True):
                if not present:
                    variable.drop_gradient()


def makers_of(buckets: list[Bucket[Tensor]]) -> set[Reducer[Tensor]]:
    """Those that have made the buckets, and say how they are reduced: not the same where several optimizers
    step with them.
    """
    return {bucket.reducer for bucket in buckets}
