"""The step of one optimizer: its buckets on their way, and what the ranks tell each other at its end.

A step ends with the *status* of all ranks, an operation of some bytes (see ``gradient_status``). What a rank
alone has met, such as a sparse gradient or one that the program has changed, is in it; then the ranks tell
each other the rest, and decide alike. A bucket with gradients of a kind that the others do not expect is
*withheld* until then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Generic

from horovod.common.collective.tensor_glue import Tensor
from horovod.common.process_sets import check_process_set
from horovod.common.training.gradient_buckets import (
    AFTER_PASS,
    EMPTY,
    IN_FLIGHT,
    IN_PASS,
    PENDING,
    REST,
    WITHHELD,
    Bucket,
    complete_all,
)
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_status import (
    ABSENT,
    DENSE,
    DROPPED,
    FAILED,
    SPARSE,
    Report,
    agreed_kinds,
    reports_of_all,
    status_of_all,
)
from horovod.common.training.gradient_variables import Variable

_WATCHED = 8


class Pipeline(Generic[Tensor]):
    """The buckets of one optimizer, and its step. A framework adds where steps begin, and which variables it
    trains.

    ``prefix``: begins the names of the operations. ``passes``: how many make a gradient due. While
    ``paused``, passes accumulate only. ``stage``: how far the present step is; REST until the first gradient
    is due. ``refusal``: why nothing may be submitted in it. ``rounds``: how often gradients were reduced.
    ``sparse_again``: gradients that travel as dense ones are sparse afterwards. ``remedy``: where the program
    has changed gradients that were being reduced.
    """

    prefix = ""
    remedy = (
        "To clip, unscale or replace gradients, call optimizer.synchronize() first and optimizer.step() "
        "within optimizer.skip_synchronize(), or make the optimizer with synchronize_in_backward=True."
    )

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
        self.rounds = 0
        self.buckets: list[Bucket[Tensor]] = []
        self._partial: list[Variable[Tensor]] = []  # of which not every rank has a gradient in every step
        self._versions: list[int] = []

    def begin(self) -> None:
        """A step begins: ``begin_step``. What keeps this rank from reducing anything is its ``refusal``."""
        raise NotImplementedError

    def variable(self, name: str, parameter: Any, bucket: Bucket[Tensor]) -> Variable[Tensor]:
        """A new member of a bucket."""
        raise NotImplementedError

    def newcomers(self) -> list[str]:
        """The variables, sorted, that are trained from this step on and were not before."""
        raise NotImplementedError

    def train(self, names: Sequence[str]) -> list[Bucket[Tensor]]:
        """Makes buckets for newcomers, which it returns."""
        raise NotImplementedError

    def retire(self, bucket: Bucket[Tensor]) -> None:
        """Takes out a bucket whose variables are trained no longer."""
        raise NotImplementedError

    @property
    def pending(self) -> bool:
        """Whether gradients are being reduced, or are due, and no backward pass is under way."""
        return self.stage is not IN_PASS and any(bucket.stage in PENDING for bucket in self.buckets)

    @property
    def touched(self) -> bool:
        """Whether a backward pass has made a gradient since they were last reduced."""
        return any(bucket.stage is not EMPTY for bucket in self.buckets)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, after sending what never became due."""
        if self.stage is REST:
            self.begin()
        self.stage = AFTER_PASS
        try:
            if self.refusal is not None:
                raise self.refusal
            added = self._round(self.buckets)
            while added:
                added = self._round(added)
        finally:
            self.rounds += 1
            self._rest()

    def forget_gradients(self) -> None:
        """The program drops the gradients. Those that are being reduced are waited for; all ranks must drop
        them, except after a backward pass that has failed, when the others give their step up.

        Raises:
            RuntimeError: other ranks make a step of them; on those, too.
            AssertionError: this one seems to have made a step of them before they were reduced.
        """
        if self.refusal is None and any(bucket.stage in PENDING for bucket in self.buckets):
            if self.stage is IN_PASS:
                with contextlib.suppress(Exception):  # that the step was given up
                    self._round(self.buckets, FAILED)
            elif self._moved():
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                    "optimizer.synchronize(), and the parameters were changed meanwhile, by gradients that "
                    "were not reduced yet. Make steps by the DistributedOptimizer, or call its synchronize() "
                    "before anything else uses the gradients."
                )
            else:
                self._round(self.buckets, DROPPED)
        self._rest()

    def drop_old(self) -> bool:
        """In a backward pass that makes gradients again: whether the program has dropped all those that are
        being reduced, and made no step of them. They are waited for, as by ``forget_gradients``.
        """
        pending = [bucket for bucket in self.buckets if bucket.stage in PENDING]
        kept = any(variable.holds_sent for bucket in pending for variable in bucket.members)
        if kept or self.stage is IN_PASS or self._moved():
            return False
        self._round(self.buckets, DROPPED)
        self._rest()
        return True

    def abandon(self) -> None:
        """Waits for what is in flight, whatever comes of it."""
        with contextlib.suppress(Exception):  # of a step that will not be made
            complete_all(self.buckets)
        self._rest()

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a gradient due."""
        self.passes = passes
        for bucket in self.buckets:
            if bucket.stage is not IN_FLIGHT:
                bucket.reset()

    def begin_step(self) -> None:
        """The first gradient of a step is due."""
        self.stage = AFTER_PASS
        self.refusal = None
        self._versions = self._watched_versions()

    def note_buckets(self) -> None:
        """Their members, or what is expected of them, are others."""
        members = [variable for bucket in self.buckets for variable in bucket.members]
        self._partial = [variable for variable in members if variable.expected & ABSENT]

    def _rest(self) -> None:
        """The step is over. A full step's backward passes are expected again."""
        self.stage = REST
        self.refusal = None
        for bucket in self.buckets:
            if bucket.stage is not EMPTY:
                bucket.reset()

    def _watched_versions(self) -> list[int]:
        return [bucket.members[0].version for bucket in self.buckets[:_WATCHED]]

    def _moved(self) -> bool:
        """Whether parameters were changed since the first gradient of this step was due."""
        return self.stage is not REST and self._versions != self._watched_versions()

    def _round(self, buckets: list[Bucket[Tensor]], given_up: str = "") -> list[Bucket[Tensor]]:
        """Sends what has not left, unless the step is ``given_up``, and hears what other ranks have met.
        Returns when all is reduced: the buckets of variables that the ranks train from now on.
        """
        mine = self._report(buckets, given_up)
        partial = self._partial if buckets is self.buckets else []
        try:
            name = f"{self.prefix}: comparison of the steps"  # reserved; reports show it
            number = check_process_set(self.reductions.process_set)
            own = [not variable.is_missing for variable in partial]
            is_unusual, present = status_of_all(mine, own, name, number)
            afterwards = [each.drop_gradient for each, has in zip(partial, present, strict=True) if not has]
            if is_unusual:
                kinds = [[variable.kind for variable in bucket.members] for bucket in buckets]
                table = reports_of_all(mine._replace(kinds=kinds), name, number)
                afterwards += self._follow(buckets, table)
        finally:
            complete_all(buckets)
        if given_up:
            return []
        for act in afterwards:
            act()
        return self._changed_buckets(buckets, mine.thawed) if is_unusual else []

    def _report(self, buckets: list[Bucket[Tensor]], given_up: str) -> Report:
        changed: list[str] = []
        withheld = []
        for place, bucket in enumerate(buckets):
            if not given_up:
                changed += bucket.changed()
            if bucket.stage is not IN_FLIGHT:
                if given_up:  # it may be of the next step
                    bucket.stage = WITHHELD
                else:
                    bucket.submit()
            if bucket.stage is WITHHELD:
                withheld.append(place)
        return Report(given_up, changed, [] if given_up else self.newcomers(), withheld)

    def _follow(self, buckets: list[Bucket[Tensor]], table: dict[int, Report]) -> list[Callable[[], None]]:
        """Does with buckets that some ranks withhold what all ranks do. Returns what is to be done once they
        are reduced. Raises as ``agreed_kinds``.
        """
        withheld = sorted({place for report in table.values() for place in report.withheld})
        for place in withheld:
            is_sent = not all(place in report.withheld for report in table.values())
            if is_sent and buckets[place].stage is WITHHELD:  # the others wait for it
                buckets[place].send()
        names = [[variable.name for variable in bucket.members] for bucket in buckets]
        found = agreed_kinds(names, table, self.remedy)
        if found is None:
            return []
        return [act for place in withheld for act in self._learn(buckets[place], found[place])]

    def _learn(self, bucket: Bucket[Tensor], found: list[int]) -> list[Callable[[], None]]:
        was_sent = bucket.stage is IN_FLIGHT
        acts: list[Callable[[], None]] = []
        for variable, kinds in zip(bucket.members, found, strict=True):
            before = variable.is_sparse
            variable.learn(kinds)
            if kinds == ABSENT:
                acts.append(variable.drop_gradient)
            elif was_sent and variable.is_sparse and not before:
                acts.append(variable.make_sparse)
        if not was_sent and any(kinds & (DENSE | SPARSE) for kinds in found):
            bucket.send()
        return acts

    def _changed_buckets(self, buckets: list[Bucket[Tensor]], thawed: Sequence[str]) -> list[Bucket[Tensor]]:
        """Takes out those that are trained no longer; returns new ones of what is."""
        for bucket in [bucket for bucket in buckets if bucket.is_frozen]:
            self.retire(bucket)
        added = self.train(thawed) if thawed else []
        self.note_buckets()
        return added
