"""The gradients of one optimizer: its buckets, what its ranks have agreed on, and one reduction of all.

One bucket is *held*: it leaves when the optimizer synchronizes, and not before. Until then no rank has made
its step, and one that has met something out of the ordinary, such as gradients that the program has changed,
can tell the others in place of that bucket's gradients. No message is spent on it otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from horovod.common.basics import rank
from horovod.common.collective.compression import is_stateful
from horovod.common.collective.exchange import Exchange
from horovod.common.process_sets import check_process_set
from horovod.common.set_agreement import exchange
from horovod.common.training.agreement import Agreement, at_construction
from horovod.common.training.differences import Facts
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReduction
from horovod.common.training.gradient_status import (
    ABSENT,
    DROPPED,
    FAILED,
    FROZEN,
    NO_NEWS,
    check_changed,
    check_thawed,
)
from horovod.common.training.presence import Presence
from horovod.torch.bucket_owners import adopt, buckets_made_by, owners, retire, shared
from horovod.torch.buckets import AFTER_PASS, IN_PASS, REST, Bucket, complete_all, cut_parameters
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.operations import ops
from horovod.torch.wrapping import SUBJECT, NamedParameters


class GradientReducer:
    """Reduces the gradients of ``parameters``. The ranks compare their ``facts`` first. ``find_added`` tells
    which parameters have come since it was called before. Both are None once the optimizer is gone, whose
    parameters others may train.

    ``stage``: how far the present step is; REST until the first gradient is due. ``refusal``: why nothing may
    be submitted in it. ``news``: what the other ranks must hear of it. ``found``: the kinds of gradients that
    the ranks have told each other of, as bits. While ``paused``, backward passes accumulate only. ``added``:
    parameters that the ranks have not agreed on yet. ``detached``: a newer optimizer has taken over its
    parameters, and reduces them in another way.
    """

    def __init__(
        self,
        settings: GradientSettings,
        parameters: NamedParameters,
        facts: Callable[[], Facts | None],
        find_added: Callable[[], NamedParameters | None],
        wants_sparse: bool,
        copied: bool,
    ) -> None:
        self.process_set = settings.process_set
        self.how = GradientReduction(settings.op, settings.prescale, settings.postscale, self.process_set)
        self.compressor = settings.compression
        stateful = is_stateful(self.compressor)
        self.exchange = Exchange(ops, settings.op, self.process_set) if stateful else None
        self.sparse_as_dense = settings.sparse_as_dense or stateful
        self.sparse_again = wants_sparse and self.sparse_as_dense
        self.passes = settings.backward_passes_per_step
        self.stage = REST
        self.refusal: Exception | None = None
        self.news = NO_NEWS
        self.found = 0
        self.paused = False
        self.buckets: list[Bucket] = []
        self.added: NamedParameters = []
        self.detached = False
        self._finish: Callable[[], None] | None = None
        self._look = facts
        self._facts: Facts = {}
        self._find_added = find_added
        self._agreement = Agreement(SUBJECT, self.process_set)
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        self._untold = False  # of `news`, what is thawed
        self._rounds_seen: dict[Bucket, int] = {}  # of the buckets shared with other optimizers
        self._outer: list[Any] = []  # hooks in passes around others
        self._versions: list[int] = []
        wanted = cut_parameters([(name, p) for name, p in parameters if p.requires_grad], settings.groups)
        self._memberships = _memberships(wanted)
        if at_construction() and not copied:
            self._agree()
        self.prefix = self._agreement.numbered(SUBJECT)
        owners.append(self)
        adopt(self, [Bucket(name, members, self) for name, members in wanted])

    @property
    def in_flight(self) -> bool:
        """Whether a gradient is being reduced."""
        return any(bucket.in_flight for bucket in self.buckets)

    @property
    def pending(self) -> bool:
        """Whether gradients are being reduced, or are due, and no backward pass is under way."""
        return self.stage is not IN_PASS and any(bucket.pending for bucket in self.buckets)

    @property
    def touched(self) -> bool:
        """Whether a backward pass has made a gradient since they were last reduced."""
        return any(bucket.touched for bucket in self.buckets)

    def finish_in_backward(self, finish: Callable[[], None]) -> None:
        """Calls ``finish`` at the end of every backward pass that has made gradients due."""
        self._finish = finish

    def add(self, parameters: NamedParameters) -> None:
        """More parameters, whose gradients are reduced one by one once the ranks have agreed on them: as on
        those that were frozen, and no longer are.
        """
        self._frozen += parameters
        self.added += parameters

    def begin(self) -> None:
        """Before the first submission of a step. Raises what keeps this rank from reducing anything."""
        self.stage = AFTER_PASS
        self.refusal = None
        self._versions = self._held_versions()
        if torch._C._current_graph_task_id() >= 0:
            self.stage = IN_PASS
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)
        self.add(self._find_added() or [])
        try:
            if not self._agreement.reached:
                self._begin_job()
        except Exception as error:
            self.refusal = error
            raise
        if self._frozen:
            self._note_thawed([name for name, p in self._frozen if p.requires_grad])

    def take_news(self) -> bool:
        """Whether the next bucket must tell the other ranks of ``news``: of what is thawed, one does."""
        untold, self._untold = self._untold, False
        return untold or bool(self.news.changed or self.news.given_up)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, after submitting what never became due."""
        if self.detached:
            raise RuntimeError(
                "The parameters of this DistributedOptimizer belong to one that was made later, with other "
                "settings (op, compression, passes, process set ...). Use that one, and drop this one."
            )
        if self.stage is REST:
            with contextlib.suppress(Exception):  # it is raised below
                self.begin()
        self.stage = AFTER_PASS
        try:
            buckets = self._not_yet_reduced() if shared else list(self.buckets)
            self._check_unchanged(buckets)
            self._note_additions()
            self._tell_without_buckets()
            missing = self._reduce(buckets)
            if self.found & FROZEN or self.news.thawed:
                thawed = self._follow_freezing()
                missing |= self._reduce(thawed)
                buckets = [bucket for bucket in buckets if bucket in self.buckets] + thawed
            self.added = []
            if any(bucket.reducer.found & ABSENT for bucket in (buckets if shared else buckets[:1])):
                self._take_back_zeros(buckets, missing)
        finally:
            self._end_step()
            if shared or self._rounds_seen:
                self._note_rounds()
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def forget_gradients(self) -> None:
        """The program drops the gradients. Those that are being reduced are waited for; all ranks must drop
        them, except after a backward pass that has failed, when the others give their step up.

        Raises:
            RuntimeError: other ranks make a step of them; on those, too.
            AssertionError: this one seems to have made a step of them before they were reduced.
        """
        if any(bucket.pending for bucket in self.buckets):
            if self.stage is IN_PASS:
                with contextlib.suppress(Exception):  # that the step was given up
                    self._tell(self.buckets, given_up=FAILED)
            elif self._moved():
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                    "optimizer.synchronize(), and the parameters were changed meanwhile, by gradients that "
                    "were not reduced yet. Make steps by the DistributedOptimizer, or call its synchronize() "
                    "before anything else uses the gradients."
                )
            else:
                self._tell(self.buckets, given_up=DROPPED)
        self.reset()

    def drop_old(self) -> bool:
        """In a backward pass that makes gradients again: whether the program has dropped all those that are
        being reduced, and made no step of them. They are waited for, as by ``forget_gradients``.
        """
        pending = [bucket for bucket in self.buckets if bucket.pending]
        kept = any(hook.holds_sent for bucket in pending for hook in bucket.members)
        if kept or self.stage is IN_PASS or self._moved():
            return False
        self._tell(self.buckets, given_up=DROPPED)
        self.reset()
        return True

    def reset(self) -> None:
        """Expects a full step's backward passes again. Nothing may be in flight."""
        self._end_step()
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
        for reducer in {self, *_makers_of(self.buckets)}:
            reducer.passes = passes
        for bucket in self.buckets:
            if not bucket.in_flight:
                bucket.reset()

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Within it, backward passes accumulate only."""
        before = {reducer: reducer.paused for reducer in _makers_of(self.buckets)}
        for reducer in before:
            reducer.paused = True
        try:
            yield
        finally:
            for reducer, paused in before.items():
                reducer.paused = paused

    def _begin_job(self) -> None:
        self._agree()
        self._train_thawed([name for name, p in self._frozen if p.requires_grad])
        self.prefix = self._agreement.numbered(SUBJECT)
        for bucket in {*self.buckets, *buckets_made_by(self)}:
            bucket.begin_job()

    def _end_step(self) -> None:
        self.stage = REST
        self.news = NO_NEWS
        self._untold = False

    def _end_of_pass(self) -> None:
        node = torch._C._current_autograd_node()
        if node is not None:  # of a pass within another, as for checkpointing: the outer one ends here too
            self._outer += [
                each.register_prehook(self._in_outer_pass) for each, _ in node.next_functions if each
            ]
            return
        for hook in self._outer:
            hook.remove()
        self._outer.clear()
        if self.stage is IN_PASS:
            self.stage = AFTER_PASS
        if self._finish is not None and self.stage is not REST:
            self._finish()

    def _in_outer_pass(self, _: object) -> None:
        """Called by what runs next after a pass within another one."""
        torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)

    def _agree(self) -> None:
        self._facts = self._look() or self._facts
        self._agreement.reach({**self._facts, **self._memberships})

    def _train_thawed(self, names: Iterable[str]) -> list[Bucket]:
        """New buckets for parameters that were frozen."""
        before, thawed = len(self.buckets), set(names)
        wanted = cut_parameters([(name, p) for name, p in self._frozen if name in thawed], None)
        self._frozen = [(name, p) for name, p in self._frozen if name not in thawed]
        adopt(self, [Bucket(name, members, self) for name, members in wanted])
        return self.buckets[before:]

    def _note_thawed(self, names: Iterable[str]) -> None:
        self._set_news(thawed=sorted(names))
        self._untold = bool(self.news.thawed)

    def _note_additions(self) -> None:
        """Parameters that have come since the first submission of this step: a held bucket tells of them."""
        self.add(self._find_added() or [])
        thawed = self.news.thawed
        late = [name for name, p in self.added if p.requires_grad and name not in thawed]
        if late:
            self._note_thawed([*thawed, *late])

    def _set_news(self, **told: Any) -> None:
        changed = self.news._replace(**told)
        self.news = changed if any(changed) else NO_NEWS

    def _tell(self, buckets: list[Bucket], **told: Any) -> None:
        """Tells the other ranks what is out of the ordinary, in place of the gradients that have not left."""
        reducers = _makers_of(buckets)
        for reducer in reducers:
            reducer._set_news(**told)
        try:
            for bucket in buckets:
                bucket.tell()
            complete_all(buckets)
        finally:
            for reducer in reducers:
                reducer._set_news(changed=(), given_up="")

    def _tell_without_buckets(self) -> None:
        """While nothing is trained, no bucket tells the others what is trained from this step on."""
        if self.refusal is None and not any(bucket.is_trained for bucket in self.buckets):
            number = check_process_set(self.process_set)
            check_thawed(exchange(list(self.news.thawed), f"{self.prefix}.trained", number))

    def _check_unchanged(self, buckets: list[Bucket]) -> None:
        """When the program has changed gradients in flight: raises, on all ranks. They hear of it by the
        buckets that have not left yet, of which there is one at least.
        """
        changed = [name for bucket in buckets for name in bucket.changed()]
        if changed:
            self._tell(buckets, changed=changed)
            check_changed({rank(): changed})

    def _reduce(self, buckets: list[Bucket]) -> set[GradientHook]:
        """Brings the reductions of all to their end; returns for what this step had made no gradient."""
        missing: set[GradientHook] = set()
        for bucket in buckets:
            if bucket.handle is None or bucket.reducer.found & ABSENT:
                missing.update(hook for hook in bucket.members if hook.is_missing)
            if bucket.handle is None:
                bucket.submit_incomplete()
        complete_all(buckets)
        return missing

    def _take_back_zeros(self, buckets: list[Bucket], missing: set[GradientHook]) -> None:
        """Leaves parameters that no rank has a gradient for without one, so that no step moves them."""
        partial = [hook for bucket in buckets for hook in bucket.members if hook.expected & ABSENT]
        if partial:
            presence = Presence(ops, f"{self.prefix}.present", self.process_set)
            somewhere = presence.finish(presence.start(hook not in missing for hook in partial))
            for hook, present in zip(partial, somewhere, strict=True):
                if not present:
                    hook.parameter.grad = None

    def _held_versions(self) -> list[int]:
        return [hook.parameter._version for bucket in self.buckets if bucket.held for hook in bucket.members]

    def _moved(self) -> bool:
        """Whether parameters were changed since the first gradient of this step was due."""
        return self.stage is not REST and self._versions != self._held_versions()

    def _follow_freezing(self) -> list[Bucket]:
        """After the ranks have agreed on it: parameters that are trained no longer, or are trained again.
        Returns the buckets of the latter.
        """
        if self.found & FROZEN:
            self.found &= ~FROZEN
            for bucket in [bucket for bucket in self.buckets if not bucket.is_trained]:
                self._frozen += [(hook.name, hook.parameter) for hook in bucket.members]
                retire(self, bucket)
        thawed = self._train_thawed(self.news.thawed)
        self._note_thawed(())
        return thawed

    def _not_yet_reduced(self) -> list[Bucket]:
        """All buckets, less those that another optimizer has reduced since this one's last step: all that
        both use, or none, because a backward pass makes all of their gradients.
        """
        common = [bucket for bucket in self.buckets if bucket in shared]
        touched = _makers_of([bucket for bucket in common if bucket.touched])
        done = {
            bucket
            for bucket in common
            if bucket.reducer not in touched and bucket.rounds != self._rounds_seen.get(bucket, 0)
        }
        return [bucket for bucket in self.buckets if bucket not in done]

    def _note_rounds(self) -> None:
        self._rounds_seen = {bucket: bucket.rounds for bucket in shared.intersection(self.buckets)}


def _makers_of(buckets: list[Bucket]) -> set[GradientReducer]:
    """Those that have made the buckets, and say how they are reduced: not the same where several optimizers
    step with them.
    """
    return {bucket.reducer for bucket in buckets}


def _memberships(wanted: list[tuple[str, NamedParameters]]) -> dict[str, str]:
    together = [[label for label, _ in members] for _, members in wanted if len(members) > 1]
    return {f"group {number}": ", ".join(labels) for number, labels in enumerate(together)}
