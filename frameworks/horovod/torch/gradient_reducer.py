"""The gradients of one optimizer: its backward passes, what its ranks have agreed on, which parameters are
trained, and those that other optimizers train too.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable
from typing import Any

import torch

from horovod.common.collective.exchange import in_rounds
from horovod.common.process_sets import check_process_set
from horovod.common.set_agreement import exchange
from horovod.common.training.agreement import Agreement, at_construction
from horovod.common.training.differences import Facts
from horovod.common.training.gradient_buckets import EMPTY, PENDING, Bucket, cut_into_buckets
from horovod.common.training.gradient_options import GradientSettings, Groups, group_name
from horovod.common.training.gradient_reducer import Reducer, makers_of
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_status import ABSENT, FROZEN, check_thawed
from horovod.common.training.gradient_variables import AFTER_PASS, IN_PASS, REST
from horovod.torch.bucket_owners import adopt, buckets_made_by, owners, retire, shared
from horovod.torch.compiling import outside_of_graphs
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.operations import ops
from horovod.torch.wrapping import SUBJECT, NamedParameters


class GradientReducer(Reducer[torch.Tensor]):
    """Reduces the gradients of ``parameters``. The ranks compare their ``facts`` first. ``find_added`` tells
    which parameters have come since it was called before. Both are None once the optimizer is gone, whose
    parameters others may train.

    ``frozen``: parameters that are not trained, with their names. ``added``: those that the ranks have not
    agreed on yet. ``detached``: another optimizer has taken over its parameters, and reduces them in another
    way.
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
        super().__init__(GradientReductions(ops, settings), settings, wants_sparse)
        self.added: NamedParameters = []
        self.detached = False
        self._finish: Callable[[], object] | None = None
        self._look = facts
        self._facts: Facts = {}
        self._find_added = find_added
        self.agreement = Agreement(SUBJECT, settings.process_set)
        self.frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        self._rounds_seen: dict[Bucket[torch.Tensor], int] = {}  # of the buckets shared with other optimizers
        self._pass = -1  # the backward pass that is under way, by autograd's number
        self._outer: list[Any] = []  # hooks in passes around others
        wanted = cut_parameters([(name, p) for name, p in parameters if p.requires_grad], settings.groups)
        if owners:  # one that is garbage may be gone on other ranks already, and would wait for them
            gc.collect()
        if at_construction() and not copied:
            self._agree([members for _, members in wanted])
        self.prefix = self.agreement.numbered(SUBJECT)
        owners.append(self)
        adopt(self, [Bucket(name, members, self) for name, members in wanted])

    def finish_in_backward(self, finish: Callable[[], object]) -> None:
        """Calls ``finish`` at the end of every backward pass that has made gradients due."""
        self._finish = finish

    def add(self, parameters: NamedParameters) -> None:
        """More parameters, whose gradients are reduced one by one once the ranks have agreed on them: as on
        those that were frozen, and no longer are.
        """
        self.frozen += parameters
        self.added += parameters

    @property
    def has_agreed(self) -> bool:
        """See ``Reducer``."""
        return self.agreement.reached

    def variable(self, name: str, parameter: torch.Tensor, bucket: Bucket[torch.Tensor]) -> GradientHook:
        """See ``Reducer``."""
        return GradientHook(name, parameter, bucket)

    def begin(self) -> None:
        """See ``Reducer``."""
        self.begin_step()
        self.note_pass()
        self.add(self._find_added() or [])
        try:
            if not self.agreement.reached:
                self._begin_job()
        except Exception as error:
            self.refusal = error
            raise
        if self.frozen:
            self.note_thawed([name for name, p in self.frozen if p.requires_grad])

    def note_pass(self) -> None:
        """See ``Reducer``."""
        task = torch._C._current_graph_task_id()
        if task >= 0:
            self.stage = IN_PASS
            self._pass = task
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, after submitting what never became due."""
        if self.detached:
            raise RuntimeError(
                "The parameters of this DistributedOptimizer belong to one that was made later, or has begun "
                "to train them later, with other settings (op, compression, passes, process set ...). Use "
                "that one, and drop this one."
            )
        if self.stage is REST:
            with contextlib.suppress(Exception):  # it is raised below
                self.begin()
        self.stage = AFTER_PASS
        try:
            buckets = self._not_yet_reduced() if shared else list(self.buckets)
            self.check_unchanged(buckets)
            self._note_additions()
            self._tell_without_buckets()
            missing = self.reduce_all(buckets)
            if self.found & FROZEN or self.news.thawed:
                thawed = self._follow_freezing()
                missing |= self.reduce_all(thawed)
                buckets = [bucket for bucket in buckets if bucket in self.buckets] + thawed
            self.added = []
            if any(bucket.reducer.found & ABSENT for bucket in (buckets if shared else buckets[:1])):
                self.take_back_zeros(buckets, missing)
        finally:
            self.end_step()
            for maker in makers_of(self.buckets) - {*owners}:  # gone: nobody else ends its steps
                maker.end_step()
            if shared or self._rounds_seen:
                self._note_rounds()
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def _begin_job(self) -> None:
        """The ranks are others, or have joined, so they may know different things."""
        made = [bucket for bucket in self.buckets if bucket.reducer is self and bucket.is_trained]
        self._agree([[(each.name, each.parameter) for each in bucket.members] for bucket in made])
        self._retire(bucket for bucket in self.buckets if not any(each.is_trained for each in bucket.members))
        self._train_thawed([name for name, p in self.frozen if p.requires_grad])
        self.prefix = self.agreement.numbered(SUBJECT)
        for bucket in {*self.buckets, *buckets_made_by(self)}:
            bucket.begin_job()

    @outside_of_graphs
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
        over = torch._C._current_graph_task_id()  # other threads may be in passes of their own
        # This one may be gone already, and others step with its buckets.
        known = dict.fromkeys((*owners, self))
        ending = [owner for owner in known if owner.stage is IN_PASS and owner._pass == over]
        for _ in in_rounds([owner._pass_is_over for owner in ending]):
            pass
        for owner in list(owners):  # whose gradients are due in the buckets of others, which do not wait
            if owner not in ending and owner._finish is not None and owner._waits_for(ending):
                owner._finish()

    def _waits_for(self, makers: list[GradientReducer]) -> bool:
        return any(bucket.reducer in makers and bucket.stage in PENDING for bucket in self.buckets)

    def _pass_is_over(self) -> bool:
        """Called in the order in which the optimizers were made: the ranks may have had their gradients in
        another one.
        """
        self.stage = AFTER_PASS
        if self._finish is not None:
            self._finish()
        return True

    @outside_of_graphs
    def _in_outer_pass(self, _: object) -> None:
        """Called by what runs next after a pass within another one."""
        self._pass = torch._C._current_graph_task_id()
        torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)

    def _agree(self, buckets: list[NamedParameters]) -> None:
        self._facts = self._look() or self._facts
        self.agreement.reach({**self._facts, **_memberships(buckets)})

    def _train_thawed(self, names: Iterable[str]) -> list[Bucket[torch.Tensor]]:
        """New buckets for parameters that were frozen."""
        before, thawed = len(self.buckets), set(names)
        wanted = cut_parameters([(name, p) for name, p in self.frozen if name in thawed], None)
        self.frozen = [(name, p) for name, p in self.frozen if name not in thawed]
        adopt(self, [Bucket(name, members, self) for name, members in wanted])
        return self.buckets[before:]

    def _note_additions(self) -> None:
        """Parameters that have come since the first submission of this step: a held bucket tells of them."""
        self.add(self._find_added() or [])
        thawed = self.news.thawed
        late = [name for name, p in self.added if p.requires_grad and name not in thawed]
        if late:
            self.note_thawed([*thawed, *late])

    def _tell_without_buckets(self) -> None:
        """While nothing is trained, no bucket tells the others what is trained from this step on."""
        if self.refusal is None and not any(bucket.is_trained for bucket in self.buckets):
            number = check_process_set(self.reductions.process_set)
            check_thawed(exchange(list(self.news.thawed), f"{self.prefix}.trained", number))

    def _follow_freezing(self) -> list[Bucket[torch.Tensor]]:
        """After the ranks have agreed on it: parameters that are trained no longer, or are trained again.
        Returns the buckets of the latter.
        """
        if self.found & FROZEN:
            self.found &= ~FROZEN
            self._retire(bucket for bucket in self.buckets if not bucket.is_trained)
        thawed = self._train_thawed(self.news.thawed)
        self.note_thawed(())
        return thawed

    def _retire(self, frozen: Iterable[Bucket[torch.Tensor]]) -> None:
        for bucket in list(frozen):
            self.frozen += [(hook.name, hook.parameter) for hook in bucket.members]
            retire(self, bucket)

    def _not_yet_reduced(self) -> list[Bucket[torch.Tensor]]:
        """All buckets, less those that another optimizer has reduced since this one's last step: all that
        both use, or none, because a backward pass makes all of their gradients.
        """
        common = [bucket for bucket in self.buckets if bucket in shared]
        touched = makers_of([bucket for bucket in common if bucket.stage is not EMPTY])
        done = {
            bucket
            for bucket in common
            if bucket.reducer not in touched and bucket.rounds != self._rounds_seen.get(bucket, 0)
        }
        return [bucket for bucket in self.buckets if bucket not in done]

    def _note_rounds(self) -> None:
        self._rounds_seen = {bucket: bucket.rounds for bucket in shared.intersection(self.buckets)}


def cut_parameters(parameters: NamedParameters, groups: Groups) -> list[tuple[str, NamedParameters]]:
    """Each bucket's name and members, of one type and one device. ``groups``: lists of parameters, or a
    number.
    """
    buckets = cut_into_buckets(
        parameters, groups, lambda each: (each[1].dtype, each[1].device), id, lambda each: id(each[1])
    )
    return [(group_name([name for name, _ in members]), members) for members in buckets]


def _memberships(buckets: list[NamedParameters]) -> dict[str, str]:
    together = sorted(", ".join(label for label, _ in members) for members in buckets if len(members) > 1)
    return {f"group {number}": labels for number, labels in enumerate(together)}
