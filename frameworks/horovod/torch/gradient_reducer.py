"""The gradients of one optimizer: its backward passes, what its ranks have agreed on, which parameters are
trained, and those that other optimizers train too.

The optimizer that was made last reduces the gradients of its parameters. An older one that trains some of
them too steps *together* with it, so that each gradient is reduced once for both, if both reduce in the same
way; otherwise the older is *detached*: it reduces nothing any more, and its next step says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from horovod.common.training.agreement import Agreement, at_construction
from horovod.common.training.differences import Facts
from horovod.common.training.gradient_buckets import AFTER_PASS, IN_PASS, REST, Bucket, complete_all
from horovod.common.training.gradient_options import GradientSettings, Groups, cut_into_buckets, group_name
from horovod.common.training.gradient_pipeline import Pipeline
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_variables import Variable
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.operations import ops
from horovod.torch.wrapping import SUBJECT, NamedParameters

_hooks: dict[int, Variable[torch.Tensor]] = {}
"""What reduces the gradient of each parameter, by ``id``."""

_reducers: list[GradientReducer] = []
"""Those of the optimizers that are alive, less the detached."""


class GradientReducer(Pipeline[torch.Tensor]):
    """Reduces the gradients of ``parameters``. The ranks compare their ``facts`` first. ``find_added`` tells
    which parameters have come since it was called before. Both are None once the optimizer is gone, whose
    parameters others may train.

    ``together``: this one and newer ones that have taken over some of its parameters. ``added``: parameters
    that the ranks have not agreed on yet. ``detached``: a newer one has taken over parameters, and reduces
    them in another way.
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
        self.together: list[GradientReducer] = [self]
        self.added: NamedParameters = []
        self.detached = False
        self._finish: Callable[[], object] | None = None
        self._look = facts
        self._facts: Facts = {}
        self._find_added = find_added
        self._agreement = Agreement(SUBJECT, settings.process_set)
        self._frozen = [(name, p) for name, p in parameters if not p.requires_grad]
        self._parameters = {id(p) for _, p in parameters}  # frozen or not
        self._rounds_seen: dict[GradientReducer, int] = {}  # of those that it steps together with
        self._outer: list[Any] = []  # hooks in passes around others
        wanted = cut_parameters([(name, p) for name, p in parameters if p.requires_grad], settings.groups)
        self._memberships = _memberships(wanted)
        if at_construction() and not copied:
            self._agree()
        self.prefix = self._agreement.numbered(SUBJECT)
        _reducers.append(self)
        self._adopt(wanted)

    def finish_in_backward(self, finish: Callable[[], object]) -> None:
        """Calls ``finish`` at the end of every backward pass that has made gradients due."""
        self._finish = finish

    def add(self, parameters: NamedParameters) -> None:
        """More parameters, whose gradients are reduced one by one once the ranks have agreed on them: as on
        those that were frozen, and no longer are.
        """
        self._parameters.update(id(p) for _, p in parameters)
        self._frozen += parameters
        self.added += parameters

    def variable(self, name: str, parameter: torch.Tensor, bucket: Bucket[torch.Tensor]) -> GradientHook:
        """See ``Pipeline``."""
        return GradientHook(name, parameter, bucket)

    def begin(self) -> None:
        """See ``Pipeline``."""
        self.begin_step()
        if torch._C._current_graph_task_id() >= 0:
            self.stage = IN_PASS
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_pass)
        try:
            if not self._agreement.reached:
                self._begin_job()
        except Exception as error:
            self.refusal = error

    def newcomers(self) -> list[str]:
        """See ``Pipeline``."""
        self.add(self._find_added() or [])
        return sorted(name for name, p in self._frozen if p.requires_grad and id(p) not in _hooks)

    def train(self, names: Sequence[str]) -> list[Bucket[torch.Tensor]]:
        """See ``Pipeline``."""
        before, thawed = len(self.buckets), set(names)
        self._adopt(cut_parameters([(name, p) for name, p in self._frozen if name in thawed], None))
        self._frozen = [(name, p) for name, p in self._frozen if name not in thawed]
        return self.buckets[before:]

    def retire(self, bucket: Bucket[torch.Tensor]) -> None:
        """See ``Pipeline``."""
        self._frozen += [(variable.name, variable.parameter) for variable in bucket.members]
        self.buckets.remove(bucket)
        _release(bucket)

    def reduce_together(self) -> None:
        """Waits until all gradients are reduced that the optimizer steps with, less those that another one
        has reduced since this one's last step: all that both use, or none, because a backward pass makes all
        of their gradients. Raises the first error.
        """
        if self.detached:
            raise RuntimeError(
                "The parameters of this DistributedOptimizer belong to one that was made later, with other "
                "settings (op, compression, passes, process set ...). Use that one, and drop this one."
            )
        first_error: Exception | None = None
        for each in self.together:
            if each.touched or each.rounds == self._rounds_seen.get(each, 0):
                try:
                    each.synchronize()
                except Exception as error:
                    first_error = first_error or error
        self._rounds_seen = {each: each.rounds for each in self.together}
        self.added = []
        if first_error is not None:
            raise first_error

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Within it, backward passes accumulate only."""
        before = [(each, each.paused) for each in self.together]
        for each, _ in before:
            each.paused = True
        try:
            yield
        finally:
            for each, paused in before:
                each.paused = paused

    def release(self) -> None:
        """For an optimizer that is gone, or detached: else its parameters would go on reporting to it."""
        if self in _reducers:
            _reducers.remove(self)
        for each in self.together:
            if not any(each in other.together for other in _reducers):
                for bucket in each.buckets:
                    _release(bucket)
                each.buckets.clear()

    @property
    def _way(self) -> tuple[object, ...]:
        """What is equal where gradients come out equal."""
        return *self.reductions.way, self.sparse_as_dense, self.passes

    def _adopt(self, wanted: list[tuple[str, NamedParameters]]) -> None:
        """Makes buckets, and gives them their parameters, whichever others these belonged to before."""
        made = [Bucket(name, members, self) for name, members in wanted]
        parameters = [parameter for _, members in wanted for _, parameter in members]
        former = [hook for parameter in parameters if (hook := hook_of(parameter)) is not None]
        with contextlib.suppress(Exception):  # of a step that its optimizer will not make
            complete_all({hook.bucket for hook in former})
        for hook in former:
            hook.bucket.drop(hook)
        for bucket in made:
            for new in bucket.members:
                _hooks[id(new.parameter)] = new
                new.attach()
        self.buckets += made
        taken = set(map(id, parameters))
        sharing = [each for each in _reducers if not taken.isdisjoint(each._parameters)]
        for other in [each for each in sharing if each is not self]:
            if other._way != self._way:
                other.detached = True
                other.release()
            elif self not in other.together:
                other.together.append(self)
                other._rounds_seen[self] = self.rounds

    def _begin_job(self) -> None:
        newcomers = self.newcomers()
        self._agree()
        self.train(newcomers)
        self.prefix = self._agreement.numbered(SUBJECT)
        for bucket in self.buckets:
            bucket.begin_job()
        self.note_buckets()

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


def hook_of(parameter: torch.Tensor) -> Variable[torch.Tensor] | None:
    """What reduces the gradient of ``parameter``."""
    return _hooks.get(id(parameter))


def _release(bucket: Bucket[torch.Tensor]) -> None:
    for hook in bucket.members:
        del _hooks[id(hook.parameter)]
    bucket.release()


def cut_parameters(
    parameters: NamedParameters, groups: Groups, identity: Callable[[Any], int] = id
) -> list[tuple[str, NamedParameters]]:
    """Each bucket's name and members, of one type and one device. ``groups``: lists of parameters, or of what
    has their ``identity``, or a number.
    """
    buckets = cut_into_buckets(
        parameters, groups, lambda each: (each[1].dtype, each[1].device), identity, lambda each: id(each[1])
    )
    return [(group_name([name for name, _ in members]), members) for members in buckets]


def _memberships(wanted: list[tuple[str, NamedParameters]]) -> dict[str, str]:
    together = [[label for label, _ in members] for _, members in wanted if len(members) > 1]
    return {f"group {number}": ", ".join(labels) for number, labels in enumerate(together)}
