"""The gradients of one optimizer: its groups, what its ranks have agreed on, and one reduction of all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from horovod.common.agreement import Agreement, Facts, at_construction
from horovod.common.gradient_options import Groups
from horovod.torch import live_groups
from horovod.torch.gradient_groups import GradientGroup, complete_all
from horovod.torch.gradient_hooks import Reduction
from horovod.torch.grouping import NamedParameters, described, group_parameters

_SUBJECT = "DistributedOptimizer"


class GradientReducer:
    """Reduces the gradients of ``parameters``. The ranks compare ``facts`` and their parameters first.

    ``detached``: a newer optimizer has taken over its parameters, and reduces them in another way.
    """

    def __init__(
        self, reduction: Reduction, parameters: NamedParameters, groups: Groups, facts: Facts, copied: bool
    ) -> None:
        self.reduction = reduction
        self.groups: list[GradientGroup] = []
        self.detached = False
        self._finish: Callable[[], None] | None = None
        self._settings = dict(facts)
        self._parameters = list(parameters)
        self._agreement = Agreement(_SUBJECT, reduction.process_set)
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        self._rounds_seen: dict[GradientGroup, int] = {}  # of the groups shared with other optimizers
        self._in_pass = False
        trained = [(name, p) for name, p in parameters if p.requires_grad]
        wanted = group_parameters(trained, groups)
        self._settings.update(_memberships(wanted))
        if at_construction() and not copied:
            self._agree()
        reduction.prefix = self._agreement.numbered(_SUBJECT)
        reduction.begin = self._begin
        live_groups.register(self)
        live_groups.adopt(self, [GradientGroup(name, members, reduction) for name, members in wanted])

    @property
    def in_flight(self) -> bool:
        """Whether a gradient is being reduced."""
        return any(group.in_flight for group in self.groups)

    @property
    def pass_failed(self) -> bool:
        """Whether a backward pass has begun to make gradients that are due, and has not come to its end."""
        return self._in_pass

    def finish_in_backward(self, finish: Callable[[], None]) -> None:
        """Calls ``finish`` at the end of every backward pass that has made gradients due."""
        self._finish = finish
        self.reduction.begin_early = True

    def add(self, parameters: NamedParameters) -> None:
        """More parameters, whose gradients are reduced one by one."""
        self._parameters += parameters
        self._frozen += [(name, p) for name, p in parameters if not p.requires_grad]
        self._train([(name, p) for name, p in parameters if p.requires_grad])

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
            groups = self._not_yet_reduced() if live_groups.shared else list(self.groups)
            for group in groups:
                if group.handle is None:
                    group.submit_incomplete()
            complete_all(groups)
            if self.reduction.changed or live_groups.shared:
                self._tell_changes(groups)
            self._follow_freezing()
        finally:
            self.reduction.end()
            if live_groups.shared or self._rounds_seen:
                self._note_rounds()
        refusal, self.reduction.refusal = self.reduction.refusal, None
        if refusal is not None:
            raise refusal

    def give_up(self) -> bool:
        """After a backward pass that failed: forgets its gradients, on all ranks. False, and nothing done,
        when all of them have been sent to the other ranks already.
        """
        waiting = [group for group in self.groups if group.trained and not group.in_flight]
        if not waiting:
            return False
        self.reduction.failed = True
        for group in waiting:
            group.tell()
        with contextlib.suppress(Exception):  # that the step was given up
            complete_all(self.groups)
        self.reset()
        return True

    def reset(self) -> None:
        """Expects a full step's backward passes again. Nothing may be in flight."""
        self._in_pass = False
        self.reduction.end()
        for group in self.groups:
            if not group.in_flight:
                group.reset()

    def abandon(self) -> None:
        """Waits for what is in flight, whatever comes of it."""
        with contextlib.suppress(Exception):  # of a step that will not be made
            complete_all(self.groups)
        self.reset()

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a gradient due."""
        self.reduction.passes = passes
        for group in self.groups:  # one that another optimizer made has settings of its own
            group.reduction.passes = passes
        for group in self.groups:
            if not group.in_flight:
                group.reset()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within it, backward passes accumulate only."""
        reductions = {id(group.reduction): group.reduction for group in self.groups}.values()
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
        try:
            if not self._agreement.reached:
                self._agree()
                for hook in (hook for group in self.groups for hook in group.members):
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
        self._agreement.reach({**self._settings, **described(self._parameters)})

    def _train(self, parameters: NamedParameters) -> None:
        wanted = group_parameters(parameters, None)
        live_groups.adopt(self, [GradientGroup(name, members, self.reduction) for name, members in wanted])

    def _tell_changes(self, groups: list[GradientGroup]) -> None:
        """When the program has changed gradients in flight: raises, on all ranks. Every group tells it,
        because a rank that has changed nothing may be one step ahead, with all of them.
        """
        reductions = {id(group.reduction): group.reduction for group in groups}.values()
        if any(reduction.changed for reduction in reductions):
            for group in groups:
                group.tell()
            try:
                complete_all(groups)
            finally:
                for reduction in reductions:
                    reduction.changed = []

    def _follow_freezing(self) -> None:
        """After the ranks have agreed on it: parameters that are trained no longer, or are trained again."""
        if self.reduction.froze:
            self.reduction.froze = False
            for group in [group for group in self.groups if not group.trained]:
                self._frozen += [(hook.name, hook.parameter) for hook in group.members]
                live_groups.retire(self, group)
        thawed = set(self.reduction.thawed)
        if thawed:
            before = len(self.groups)
            self._train([(name, p) for name, p in self._frozen if name in thawed])
            self._frozen = [(name, p) for name, p in self._frozen if name not in thawed]
            self.reduction.note_thawed([])
            for group in self.groups[before:]:
                group.submit_incomplete()
            complete_all(self.groups)

    def _not_yet_reduced(self) -> list[GradientGroup]:
        """All groups, less those that another optimizer has reduced since this one's last step: all that both
        use, or none, because a backward pass makes all of their gradients.
        """
        shared = [group for group in self.groups if group in live_groups.shared]
        touched = {id(group.reduction) for group in shared if group.touched}
        done = {
            group
            for group in shared
            if id(group.reduction) not in touched and group.rounds != self._rounds_seen.get(group, 0)
        }
        return [group for group in self.groups if group not in done]

    def _note_rounds(self) -> None:
        shared = live_groups.shared.intersection(self.groups)
        self._rounds_seen = {group: group.rounds for group in shared}


def _memberships(wanted: list[tuple[str, NamedParameters]]) -> dict[str, str]:
    return {
        f"group {name!r}": ", ".join(label for label, _ in members)
        for name, members in wanted
        if len(members) > 1
    }
