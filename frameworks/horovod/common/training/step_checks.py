"""Checks of a training step that a user switches on: gradients that are no numbers, and ranks whose models
have drifted apart. All ranks of the process set come to the same verdict in the same step.

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
from typing import Any

from horovod.bootstrap.text import shown
from horovod.common.exceptions import NonfiniteGradientError, ParameterDivergenceError
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.set_agreement import exchange, ranks_text
from horovod.common.training.agreement import job

NONFINITE_VARIABLE = "HOROVOD_CHECK_NONFINITE"
PARAMETERS_VARIABLE = "HOROVOD_CHECK_PARAMETERS_EVERY"

_NONFINITE_NAME = "horovod.nonfinite"  # reserved, as is the next
_DIGEST_NAME = "horovod.parameters"
_DIGEST_BYTES = 8
_RANKS_SHOWN = 4

# Names of parameters with what of each is hashed.
Contents = Iterable[tuple[str, bytes | memoryview]]


class StepChecks:
    """The checks of one optimizer. ``nonfinite``: whether gradients are looked at; ``every``: every how many
    steps, from the first on, the parameters are compared (0: never). ``parameters``: what is compared, where
    it is always the same. ``label``: told apart from the checks that may be made at the same time.
    """

    def __init__(
        self, process_set: ProcessSet, parameters: Callable[[], Contents] | None = None, label: str = ""
    ) -> None:
        self.nonfinite = _flag(NONFINITE_VARIABLE)
        self.every = _count(PARAMETERS_VARIABLE)
        self.step = 0
        self._process_set = process_set
        self._parameters = parameters
        self._label = f".{label}" if label else ""
        self._first: tuple[str, str] | None = None
        self._job = job()

    @property
    def wanted(self) -> bool:
        """Whether there is anything to check."""
        return self.nonfinite or self.every > 0

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
        first, self._first = self._first, None
        self.begin_step(parameters)
        self._first = first
        self.check_gradients()

    def begin_step(self, parameters: Contents = ()) -> None:
        """The first half of ``before_update``, where a step makes its gradients itself."""
        if self.count_step():
            self.compare(parameters if self._parameters is None else self._parameters())

    def count_step(self) -> bool:
        """The first half of ``begin_step``: whether this is a step in which parameters are compared. The
        steps of a job are counted, so that all ranks count the same.
        """
        if self._job != job():
            self._job, self.step = job(), 0
        self.step += 1
        return self.every > 0 and (self.step - 1) % self.every == 0

    def check_gradients(self) -> None:
        """The second half, once the gradients are there."""
        first, self._first = self._first, None
        if self.nonfinite:
            self._compare_notes(first)

    def compare(self, parameters: Contents) -> None:
        """The second half of ``begin_step``. Raises ParameterDivergenceError."""
        names, digests, total = [], [], hashlib.sha256()
        for name, content in parameters:
            digest = hashlib.sha256(content).digest()
            total.update(digest)
            names.append(name)
            digests.append(digest[:_DIGEST_BYTES].hex())
        if len(set(self._exchange(total.hexdigest(), _DIGEST_NAME).values())) > 1:
            described = self._exchange([names, digests], _DIGEST_NAME)
            names, _ = described[min(described)]  # the same text everywhere, whatever a rank calls its own
            by_rank = {rank: theirs for rank, (_, theirs) in described.items()}
            raise ParameterDivergenceError(_divergence_text(self.step, names, by_rank))

    def _compare_notes(self, first: tuple[str, str] | None) -> None:
        found = {rank: told for rank, told in self._exchange(first, _NONFINITE_NAME).items() if told}
        if found:
            raise NonfiniteGradientError(_nonfinite_text(self.step, found))

    def _exchange(self, message: Any, name: str) -> dict[int, Any]:
        return exchange(message, name + self._label, check_process_set(self._process_set))


_of_steps: weakref.WeakKeyDictionary[ProcessSet, dict[Hashable, StepChecks]] = weakref.WeakKeyDictionary()


def asked_for() -> bool:
    """Whether the environment says anything about these checks."""
    return NONFINITE_VARIABLE in os.environ or PARAMETERS_VARIABLE in os.environ


def of_steps(process_set: ProcessSet, subject: str, key: Hashable) -> StepChecks | None:
    """The checks of a training that describes itself anew in each step, by ``subject`` and ``key``, which are
    equal on all ranks. None where the environment asks for none.
    """
    if not asked_for():
        return None
    known = _of_steps.setdefault(process_set, {})
    if (subject, key) not in known:
        known[subject, key] = StepChecks(process_set, label=subject)
    found = known[subject, key]
    return found if found.wanted else None


def _nonfinite_text(step: int, found: dict[int, tuple[str, str]]) -> str:
    rank, *others = sorted(found)
    name, what = found[rank]
    text = f"In step {step} the gradient of '{shown(name)}' on rank {rank} has {what}"
    listed = [f"rank {other} ('{shown(found[other][0])}')" for other in others[:_RANKS_SHOWN]]
    more = ["others"] if len(others) > _RANKS_SHOWN else []
    also = f"; so have gradients on {', '.join(listed + more)}" if others else ""
    return f"{text}{also}. No rank has applied it. Look at that rank's input and learning rate."


def _divergence_text(step: int, names: Sequence[str], by_rank: dict[int, list[str]]) -> str:
    counts = collections.Counter(tuple(digests) for digests in by_rank.values()).most_common(2)
    usual = counts[0][0]
    has_majority = 2 * counts[0][1] > len(by_rank)
    odd = sorted(rank for rank, digests in by_rank.items() if tuple(digests) != usual)
    rest = sorted(by_rank.keys() - set(odd))
    places = [at for at, name in enumerate(names) if any(by_rank[rank][at] != usual[at] for rank in odd)]
    verb = "differs" if len(odd) == 1 else "differ"
    whose = f"{ranks_text(odd)} {verb} from {ranks_text(rest)}"
    minority = "" if has_majority else ", and no majority tells which are right"
    return (
        f"Before step {step} the parameters are not equal on all ranks: {whose}{minority}; the first tensor "
        f"that differs is '{shown(names[places[0]])}' ({len(places)} of {len(names)} do). Broadcast the "
        "parameters at the start, and change them on all ranks alike."
    )


def _flag(variable: str) -> bool:
    text = os.environ.get(variable, "").lower()
    if text not in {"", "0", "1", "false", "true", "no", "yes", "off", "on"}:
        raise ValueError(f"{variable}={shown(text)}: expected 0 or 1")
    return text in {"1", "true", "yes", "on"}


def _count(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return 0
    if not text.isdecimal() or len(text) > 12:
        raise ValueError(f"{variable}={shown(text)}: expected a number of steps, 0 for never")
    return int(text)
