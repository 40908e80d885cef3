"""The ranks of a process set compare, once, the optimizer, gradient tape or trainer that each has made.

Ranks that reduce other gradients than their peers, or reduce them in another way, wait for each other for
ever or train different models. So what wraps an optimizer describes it by *facts*, texts by label::

    agreement = Agreement("DistributedOptimizer", process_set)
    agreement.reach({"op": "Average", "parameter '0.weight'": "float32 [8, 4]"})
    prefix = agreement.numbered("DistributedOptimizer")

Facts may be known late, as with a Keras optimizer that learns its variables when it is built: all ranks then
call ``reach`` there. It is a collective, so all ranks must call it for their objects in one order. When all
facts are equal it is one small allgather (a digest travels, not the facts), and no later step costs anything:
``reached`` says whether it was done since ``hvd.init()``, and since the ranks last joined.

The objects of one kind are counted per process set, and the number is agreed upon too. It makes names of
operations unique, and is the same on all ranks whatever each of them has kept or dropped before.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from horovod.common import basics
from horovod.common.exceptions import TensorMismatchError
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.set_agreement import exchange, listed
from horovod.common.training.differences import Facts, common_problem, differences, digest_of, variants
from horovod.common.training.gradient_options import GradientSettings, groups_text
from horovod.common.training.present_gradients import PresentGradients

_NAME = "hvd.DistributedOptimizer() or its like: comparison"  # reserved; reports show it

_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?(?::\d+)?", re.DOTALL)

_job = 0  # changes with every shutdown: the ranks of the next job need not be the same
_lock = threading.Lock()  # guards the counts
_counts: weakref.WeakKeyDictionary[ProcessSet, dict[str, int]] = weakref.WeakKeyDictionary()


class Agreement:
    """What the ranks of ``process_set`` have agreed on about one object, called ``subject`` in messages.

    ``number``: which of the objects of this kind it is, from 1 on.
    """

    __slots__ = ("_phase", "number", "process_set", "subject")

    def __init__(self, subject: str, process_set: ProcessSet = global_process_set) -> None:
        self.subject = subject
        self.process_set = process_set
        with _lock:
            self.number = _counted(process_set).get(subject, 0) + 1
            _counted(process_set)[subject] = self.number
        self._phase: tuple[int, int] | None = None

    @property
    def reached(self) -> bool:
        """Whether the ranks of this job have agreed since they last joined."""
        return self._phase == phase()

    @property
    def reached_in_job(self) -> bool:
        """Whether the ranks of this job have agreed, before or after they joined."""
        return self._phase is not None and self._phase[0] == _job

    def reach(self, facts: Facts, name: str = _NAME) -> bool:
        """Compares ``facts`` with those of the other ranks; returns when all are equal.

        Args:
            facts: of this rank.
            name: of the operation.

        Returns:
            Whether all ranks took part: none had joined.

        Raises:
            TensorMismatchError: the ranks differ. The text is the same on every rank, and says which rank has
                what. Nothing is left in flight.
            ValueError: another rank has refused.
            HorovodInternalError: a rank is gone.
        """
        ranks = self._compare(facts, None, name)
        self._phase = phase()
        return ranks == self.process_set.size()

    def refuse(self, problem: str) -> NoReturn:
        """In place of ``reach``: this rank cannot make the object. ValueError, on all ranks."""
        self._compare({}, problem, _NAME)
        raise ValueError(problem)

    def _compare(self, facts: Facts, problem: str | None, name: str) -> int:
        """Returns how many ranks took part."""
        number = check_process_set(self.process_set)
        digest = digest_of([self.subject, sorted(facts.items())])
        answers = exchange([self.number, digest, problem], name, number)
        common = common_problem({rank: theirs for rank, (_, _, theirs) in answers.items()})
        if common is not None:
            raise ValueError(common)
        digests = {rank: theirs for rank, (_, theirs, _) in answers.items()}
        if len(set(digests.values())) > 1:
            raise TensorMismatchError(self._difference(facts, digests, name, number))
        self.number = max(theirs for theirs, *_ in answers.values())
        _count(self.process_set, self.subject, self.number)
        return len(answers)

    def numbered(self, name: str) -> str:
        """``name`` for the first object of its kind, ``name#2`` for the second."""
        return name if self.number == 1 else f"{name}#{self.number}"

    def _difference(self, facts: Facts, digests: dict[int, str], name: str, process_set: int) -> str:
        """Why the ranks do not agree. A collective, of all whose ``digests`` were exchanged."""
        described = variants([self.subject, dict(facts)], digests, name, process_set)
        subjects = {rank: subject for rank, (subject, _) in described.items()}
        if len(set(subjects.values())) > 1:
            return f"The ranks made different things at the same place of their programs: {listed(subjects)}."
        found = {rank: theirs for rank, (_, theirs) in described.items()}
        return (
            f"The ranks made their {self.subject} in different ways: "
            f"{differences(found, sorted(digests.keys() - described.keys()))} "
            f"Make the {self.subject} on all ranks with equal parameters and arguments."
        )


class StepAgreement:
    """What the ranks have agreed on about something that each step describes anew, as a gradient tape does.

    A description that was not there before is compared before the step goes on, so all ranks must come to it
    in the same step. Descriptions are told apart by *keys*: values, equal where the facts are.
    """

    __slots__ = ("_agreement", "_known", "_missed")

    def __init__(self, subject: str, process_set: ProcessSet = global_process_set) -> None:
        self._agreement = Agreement(subject, process_set)
        self._known: dict[Hashable, PresentGradients] = {}
        self._missed: set[Hashable] = set()  # of these: by ranks that had joined

    def __reduce__(self) -> tuple[type[StepAgreement], tuple[str, ProcessSet]]:
        return StepAgreement, (self._agreement.subject, self._agreement.process_set)  # of a copy: anew

    def numbered(self, name: str) -> str:
        """See ``Agreement``; the number is agreed once ``once`` has returned."""
        return self._agreement.numbered(name)

    def once(self, key: Hashable, facts: Callable[[], Facts]) -> PresentGradients:
        """Compares ``facts()`` with those of the other ranks, if this job has not yet for ``key``. Raises as
        ``Agreement.reach``. Returns what the ranks know of each other's gradients, of this ``key``.
        """
        if not self._agreement.reached_in_job:
            self._known.clear()
        if not self._agreement.reached:
            for missed in self._missed:
                self._known.pop(missed, None)
            self._missed.clear()
        if key not in self._known:
            is_main = threading.current_thread() is threading.main_thread()
            # Several threads of a program train in another order on each rank.
            if not self._agreement.reach(facts(), _NAME if is_main else f"{_NAME}.{self._agreement.subject}"):
                self._missed.add(key)
            name = self.numbered(self._agreement.subject)
            self._known[key] = PresentGradients(name, self._agreement.process_set)
        return self._known[key]


class Reduced(NamedTuple):
    """A variable whose gradient is reduced. ``label``: what it is called on all ranks; may be empty."""

    label: str
    dtype: str
    shape: tuple[int | None, ...] | None


def own_name(variable: Any) -> str:
    """What the variable itself is called, as in ``kernel``: without the layers that it is in, and without
    the number that tells it from others of the name, which a rank that has built more models counts
    differently.
    """
    return _name_and_number(str(getattr(variable, "name", "")))[0]


def own_names(variables: Iterable[Any]) -> list[str]:
    """``own_name`` of each, and behind it which one of the numbers of its name it has, where there are
    several among them: a rank with another order is told from one that has counted from elsewhere.
    """
    told = [_name_and_number(str(getattr(variable, "name", ""))) for variable in variables]
    numbers: dict[str, set[int]] = {}
    for name, number in told:
        numbers.setdefault(name, set()).add(number)
    return [
        f"{name}.{sorted(numbers[name]).index(number)}" if len(numbers[name]) > 1 else name
        for name, number in told
    ]


@functools.lru_cache(10_000)
def _name_and_number(path: str) -> tuple[str, int]:
    """Of ``layer/kernel_2:0`` kernel and 2; -1 where there is no number."""
    found = _NUMBERED.fullmatch(path.rpartition("/")[2])
    assert found is not None
    return found[1], -1 if found[2] is None else int(found[2])


def described(variables: Sequence[Any]) -> tuple[Reduced, ...]:
    """What ranks compare of variables of Keras."""
    return tuple(
        Reduced(name, str(each.dtype), tuple(each.shape))
        for name, each in zip(own_names(variables), variables, strict=True)
    )


_of_steps: weakref.WeakKeyDictionary[ProcessSet, dict[str, StepAgreement]] = weakref.WeakKeyDictionary()


def agree_on_gradients(
    name: str,
    settings: GradientSettings,
    reduced: tuple[Reduced, ...],
    variables: Sequence[Any],
    identity: Callable[[Any], int],
) -> PresentGradients:
    """Before the first step of what is called in each step: the ranks reduce the same, in the same way.

    Args:
        name: Of what reduces gradients; it tells several of a process set apart.
        settings: How they are reduced.
        reduced: What is reduced.
        variables: The variables that the gradients belong to, as the groups of ``settings`` may name them.
        identity: What two objects that stand for one variable have in common.

    Returns:
        What the ranks know of each other's gradients.

    Raises:
        TensorMismatchError: On every rank, when they differ.
    """
    how = settings.facts()

    def facts() -> Facts:
        positions = {identity(variable): place for place, variable in enumerate(variables)}
        groups = {"groups": groups_text(settings.groups, positions, identity)}
        return {**how, **groups, **_variable_facts(reduced)}

    known = _of_steps.setdefault(settings.process_set, {})
    if name not in known:
        known[name] = StepAgreement(name, settings.process_set)
    return known[name].once((reduced, tuple(how.values())), facts)


def _variable_facts(variables: Sequence[Reduced]) -> dict[str, str]:
    """Facts: each variable, by place."""
    return {
        f"variable {place} {variable.label!r}": f"{variable.dtype} {variable.shape}"
        for place, variable in enumerate(variables)
    }


def at_construction() -> bool:
    """Whether ranks can compare an object when it is made. In an elastic job they cannot: one that has just
    come makes its objects while the others already have theirs, so they compare at the first use.
    """
    return os.environ.get("HOROVOD_ELASTIC") != "1"


def phase() -> tuple[int, int]:
    """What changes with every shutdown, and whenever all ranks have joined: what the ranks know of each other
    and what they have counted holds no longer.
    """
    return _job, basics.joins()


def _counted(process_set: ProcessSet) -> dict[str, int]:
    return _counts.setdefault(process_set, {})


def _count(process_set: ProcessSet, subject: str, number: int) -> None:
    with _lock:
        counted = _counted(process_set)
        counted[subject] = max(counted.get(subject, 0), number)


def _end_job() -> None:
    global _job
    _job += 1


basics.on_shutdown(_end_job)
