"""What the ranks tell each other at the end of a step, and what all of them make of it.

A rank learns things that the others do not know: a backward pass shows it a sparse gradient, the program has
frozen a variable, or has changed a gradient while it was being reduced. The *status* of a step is a byte for
each such thing, reduced by Max: of whether there is any, and of the gradients that not every rank has in
every step. Where some rank has met something, all send their *report*, and decide alike.

A core that returned such a byte of all ranks with each operation would make this reduction needless.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple

from horovod.common.exceptions import TensorMismatchError
from horovod.common.set_agreement import any_of, exchange, listed, ranks_text

DENSE, ABSENT, SPARSE, FROZEN = 1, 2, 4, 8
"""Kinds of gradients that a rank may have for a variable, as bits: those of several ranks are one number.
FROZEN: the variable is not trained.
"""

FAILED, DROPPED = "failed", "dropped"
"""Why a rank makes no step: its backward pass has failed, or the program has dropped the gradients."""

_MOST_NAMES = 5


class Report(NamedTuple):
    """What one rank has met in a step. ``given_up``: why it makes no step, empty if it does. ``changed``:
    gradients that the program has changed while they were being reduced. ``thawed``: variables that were
    frozen, and are trained from this step on, sorted. ``withheld``: the places of buckets that it has not
    sent. ``kinds``: of the gradients of each bucket, known where they matter.
    """

    given_up: str
    changed: Sequence[str]
    thawed: Sequence[str]
    withheld: Sequence[int]
    kinds: Sequence[Sequence[int]] = ()

    @property
    def is_unusual(self) -> bool:
        """Whether all ranks must hear of it."""
        return bool(self.changed or self.thawed or self.withheld or self.given_up == FAILED)


def status_of_all(
    mine: Report, present: Sequence[bool], name: str, process_set: int
) -> tuple[bool, list[bool]]:
    """Whether some rank has something to report; and which of some gradients are ``present`` on some rank."""
    dropped = mine.given_up == DROPPED
    told = any_of([mine.is_unusual, dropped, not dropped, *present], name, process_set)
    is_unusual, some_dropped, some_kept, *somewhere = told
    return is_unusual or (some_dropped and some_kept), somewhere


def reports_of_all(mine: Report, name: str, process_set: int) -> dict[int, Report]:
    """The reports, by rank."""
    told = exchange(mine, f"{name} in full", process_set)
    return {rank: Report(*report) for rank, report in sorted(told.items())}


def agreed_kinds(
    names: Sequence[Sequence[str]], table: dict[int, Report], remedy: str
) -> list[list[int]] | None:
    """The kinds that the ranks have for the variables ``names`` of each bucket; None if all have dropped
    their gradients. ``remedy``: where the program has changed some that were being reduced.

    Raises:
        RuntimeError: a rank has changed a gradient in flight, or makes no step; on all ranks.
        TensorMismatchError: some ranks train a variable that others do not; on all ranks.
    """
    if _is_given_up({rank: report.given_up for rank, report in table.items()}):
        return None
    _check_changed({rank: report.changed for rank, report in table.items() if report.changed}, remedy)
    _check_thawed({rank: report.thawed for rank, report in table.items()})
    for bucket, members in enumerate(names):
        for place, name in enumerate(members):
            _check_frozen(name, {rank: report.kinds[bucket][place] for rank, report in table.items()})
    return [
        [functools.reduce(operator.or_, kinds) for kinds in zip(*rows, strict=True)]
        for rows in zip(*(report.kinds for report in table.values()), strict=True)
    ]


def _is_given_up(reasons: dict[int, str]) -> bool:
    """Whether all ranks have dropped the gradients. Raises when some make no step and others do."""
    failed = [rank for rank, reason in reasons.items() if reason == FAILED]
    if failed:
        raise RuntimeError(
            f"The backward pass failed on {ranks_text(failed)}, so all ranks give this step up. Call "
            "optimizer.zero_grad() and go on with the next batch."
        )
    dropped = [rank for rank, reason in reasons.items() if reason == DROPPED]
    if dropped and len(dropped) < len(reasons):
        raise RuntimeError(
            f"zero_grad() was called between loss.backward() and optimizer.step() on {ranks_text(dropped)} "
            "and not on the other ranks, so all ranks give this step up. Leave a step out on all ranks or on "
            "none: let them agree on it, by hvd.allreduce of a flag for example."
        )
    return bool(dropped)


def _check_changed(changed: dict[int, Sequence[str]], remedy: str) -> None:
    if changed:
        names = list(dict.fromkeys(name for theirs in changed.values() for name in theirs))
        shown = ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        raise RuntimeError(
            f"The gradient of {shown} was changed between loss.backward() and optimizer.step(), while it was "
            f"being reduced (on {ranks_text(list(changed))}). {remedy}"
        )


def _check_thawed(thawed: dict[int, Sequence[str]]) -> None:
    if len({tuple(names) for names in thawed.values()}) > 1:
        texts = {rank: ", ".join(map(repr, names)) or "none" for rank, names in thawed.items()}
        raise TensorMismatchError(
            f"The ranks have begun to train different parameters: {listed(texts)}. Set requires_grad of a "
            "parameter in the same step on all ranks."
        )


def _check_frozen(name: str, kinds: dict[int, int]) -> None:
    frozen = [kind == FROZEN for kind in kinds.values()]
    if any(frozen) and not all(frozen):
        texts = {rank: f"requires_grad={kind != FROZEN}" for rank, kind in kinds.items()}
        raise TensorMismatchError(
            f"The ranks do not train the same parameters: {name!r} has {listed(texts)}. Freeze a parameter "
            "in the same step on all ranks."
        )
