"""Checks of a training step: gradients that are no numbers, and ranks whose models have drifted apart, which
a user switches on; and, unless it is switched off, whether the models are equal after the first step. All
ranks of the process set come to the same verdict in the same step.

After the first step means before the second update: programs broadcast their parameters at the start, or once
the first step has made the optimizer's state. Models that differ then are a warning and no error: they mostly
train for nothing, but unlike processors may round differently, and a program may mean it so.

An adapter tells what it sees: ``note`` for each gradient of this rank that is not finite, before the ranks'
gradients are combined, and ``before_update`` before each update of the parameters. One that has all gradients
of a step before it combines any of them asks ``of_steps`` for the checks, and makes both then.
"""

from __future__ import annotations

import collections
import hashlib
import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from horovod import _core
from horovod.bootstrap.text import log, shown
from horovod.bootstrap.variables import flag
from horovod.common import remarks
from horovod.common.exceptions import NonfiniteGradientError, ParameterDivergenceError
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.set_agreement import exchange, ranks_text
from horovod.common.training.agreement import phase
from horovod.common.training.fingerprints import fingerprint

NONFINITE_VARIABLE = "HOROVOD_CHECK_NONFINITE"
PARAMETERS_VARIABLE = "HOROVOD_CHECK_PARAMETERS_EVERY"
FIRST_STEP_VARIABLE = "HOROVOD_CHECK_FIRST_STEP"

_NONFINITE_NAME = (
    "optimizer.step(): gradients that are not finite"  # reserved, as is the next; reports show them
)
_DIGEST_NAME = "optimizer.step(): comparison of the parameters"
_DIGEST_BYTES = 8
_RANKS_SHOWN = 4
_AFTER_FIRST = 2  # the step before whose update the first one is over, broadcasts and all

Contents = Iterable[tuple[str, "bytes | memoryview | Fingerprint"]]
"""Names of parameters with the bytes of each."""


class Fingerprint(bytes):
    """Of the bytes of a parameter, in place of them; see ``fingerprints``."""


class StepChecks:
    """The checks of one optimizer. ``nonfinite``: whether gradients are looked at; ``every``: every how many
    steps, from the first on, the parameters are compared (0: never); ``first``: whether they are after the
    first step, otherwise. ``parameters``: what is compared, where it is always the same. ``label``: returns
    what tells them apart from the checks that may be made at the same time, equal on all ranks. ``remedy``:
    what to add where the models differ.
    """

    def __init__(
        self,
        process_set: ProcessSet,
        parameters: Callable[[], Contents] | None = None,
        label: Callable[[], str] = str,
        remedy: str = "",
    ) -> None:
        self.nonfinite = flag(NONFINITE_VARIABLE)
        self.every = _count(PARAMETERS_VARIABLE)
        self.first = self.every == 0 and flag(FIRST_STEP_VARIABLE, default=True)
        self._remedy = remedy
        self.step = 0
        self._process_set = process_set
        self._parameters = parameters
        self._label = label
        self._first: tuple[str, str] | None = None
        self._phase = phase()
        self._has_begun = False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to check any more in this job."""
        is_done = not self.first or (self.step >= _AFTER_FIRST and self._phase == phase())
        return is_done and not self.nonfinite and self.every == 0

    @property
    def noted(self) -> bool:
        """Whether something was noted since the last update."""
        return self._first is not None

    def note(self, name: str, what: str) -> None:
        """The gradient ``name`` of this rank has ``what``, "NaN" or "Inf". The first of a step counts."""
        self._first = self._first or (name, what)

    def note_first(self, kinds: Iterable[tuple[str, str | None]]) -> None:
        """The gradients of this rank, by name, with what each has: "NaN", "Inf" or nothing. Those behind the
        first that counts are not asked for.
        """
        for name, kind in kinds:
            if kind is not None:
                self.note(name, kind)
                break

    def forget(self) -> None:
        """What was noted belongs to a step that was left out."""
        self._first = None

    def before_update(self, parameters: Contents = ()) -> None:
        """A whole step. At most two small collectives. ``parameters``: where they were not given before.

        Raises:
            ParameterDivergenceError: the ranks' parameters differ.
            NonfiniteGradientError: some rank has noted a gradient.
                Both on all ranks, with one text, before any parameter has changed.
        """
        try:
            self.begin_step(parameters)
        except BaseException:
            self.forget()
            raise
        self.check_gradients()

    def begin_step(self, parameters: Contents = ()) -> None:
        """The first half of ``before_update``, where a step makes its gradients itself."""
        if self.count_step():
            self.compare(parameters if self._parameters is None else self._parameters())

    def begins_comparison(self) -> bool:
        """Once, whether parameters may be compared before the first step, because all ranks come to it."""
        begins, self._has_begun = not self._has_begun and self.step == 0, True
        return begins

    def count_step(self) -> bool:
        """The first half of ``begin_step``: whether this is a step in which parameters are compared. The
        steps of a job are counted, from the last join on, so that all ranks count the same.
        """
        if self._phase != phase():
            self._phase, self.step = phase(), 0
        self.step += 1
        if self.every > 0:
            return (self.step - 1) % self.every == 0
        return self.first and self.step == _AFTER_FIRST

    def check_gradients(self) -> None:
        """The second half, once the gradients are there."""
        first, self._first = self._first, None
        if self.nonfinite:
            self._compare_notes(first)

    def compare(self, parameters: Contents) -> None:
        """The second half of ``begin_step``. ParameterDivergenceError, or a warning after the first step."""
        difference = self.difference(parameters)
        if difference is None:
            return
        if self.every > 0:
            raise ParameterDivergenceError(
                f"Before step {self.step} {difference.text} Broadcast the parameters at the start, and "
                "change them on all ranks alike."
            )
        self.warn(difference)

    def difference(self, parameters: Contents) -> Difference | None:
        """In what the ranks' parameters differ; the same on all of them. At most two small collectives."""
        names, digests, total = [], [], hashlib.sha256()
        for name, content in parameters:
            digest = content if isinstance(content, Fingerprint) else fingerprint(content)
            total.update(digest)
            names.append(name)
            digests.append(digest[:_DIGEST_BYTES].hex())
        if len(set(self._exchange(total.hexdigest(), _DIGEST_NAME).values())) == 1:
            return None
        described = self._exchange([names, digests], _DIGEST_NAME)
        names, _ = described[min(described)]  # the same text everywhere, whatever a rank calls its own
        by_rank = {rank: theirs for rank, (_, theirs) in described.items()}
        return Difference(min(described), _divergence_text(names, by_rank))

    def warn(self, difference: Difference) -> None:
        """Says, on one of the ranks, that their models differ after the first step."""
        if _core.topology()[0] != difference.teller:
            return
        text = (
            f"after the first step {difference.text} Each of them trains another model. "
            f"Add {self._remedy or 'a broadcast of the parameters before the first step'}. Where they are to "
            f"differ, set {FIRST_STEP_VARIABLE}=0 on all ranks"
        )
        log("warning", difference.teller, text)
        remarks.tell(text)

    def _compare_notes(self, first: tuple[str, str] | None) -> None:
        found = {rank: told for rank, told in self._exchange(first, _NONFINITE_NAME).items() if told}
        if found:
            raise NonfiniteGradientError(_nonfinite_text(self.step, found))

    def _exchange(self, message: Any, name: str) -> dict[int, Any]:
        label = self._label()
        return exchange(message, f"{name}.{label}" if label else name, check_process_set(self._process_set))


class Difference(NamedTuple):
    """In what the parameters of ranks differ, and which of them is to speak of it."""

    teller: int
    text: str


_of_steps: weakref.WeakKeyDictionary[ProcessSet, dict[Hashable, StepChecks]] = weakref.WeakKeyDictionary()


def of_steps(
    process_set: ProcessSet, subject: str, key: Hashable, remedy: str, outlasts_job: bool = False
) -> StepChecks | None:
    """The checks of a training that describes itself anew in each step, by ``subject`` and ``key``, which are
    equal on all ranks. None where there are none to make. ``remedy``: see ``StepChecks``. ``outlasts_job``:
    what makes them is used in later jobs, too, as a graph is in an elastic job: it makes those that are over
    in this one.
    """
    known = _of_steps.setdefault(process_set, {})
    found = known.get((subject, key))
    if found is None:
        found = known[subject, key] = StepChecks(process_set, label=lambda: subject, remedy=remedy)
    return None if found.is_over and not (outlasts_job and found.first) else found


def _nonfinite_text(step: int, found: dict[int, tuple[str, str]]) -> str:
    rank, *others = sorted(found)
    name, what = found[rank]
    text = f"In step {step} the gradient of '{shown(name)}' on rank {rank} has {what}"
    listed = [f"rank {other} ('{shown(found[other][0])}')" for other in others[:_RANKS_SHOWN]]
    more = ["others"] if len(others) > _RANKS_SHOWN else []
    also = f"; so have gradients on {', '.join(listed + more)}" if others else ""
    return f"{text}{also}. No rank has applied it. Look at that rank's input and learning rate."


def _divergence_text(names: Sequence[str], by_rank: dict[int, list[str]]) -> str:
    counts = collections.Counter(tuple(digests) for digests in by_rank.values()).most_common(2)
    usual = counts[0][0]
    has_majority = 2 * counts[0][1] > len(by_rank)
    odd = sorted(rank for rank, digests in by_rank.items() if tuple(digests) != usual)
    rest = sorted(by_rank.keys() - set(odd))
    columns = zip_longest(*by_rank.values(), fillvalue="")
    places = [at for at, digests in enumerate(columns) if len(set(digests)) > 1]
    first = names[places[0]] if places and places[0] < len(names) else "one that not all have"
    verb = "differs" if len(odd) == 1 else "differ"
    whose = f"{ranks_text(odd)} {verb} from {ranks_text(rest)}"
    minority = "" if has_majority else ", and no majority tells which are right"
    return (
        f"the parameters are not equal on all ranks: {whose}{minority}; the first tensor that differs is "
        f"'{shown(first)}' ({len(places)} of {len(names)} do)."
    )


def _count(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) <= 12 else 0
