"""What a rank tells the others where its step is out of the ordinary, and what all of them make of it.

A rank learns things that the others do not know: a backward pass shows it a sparse gradient, the program has
frozen a variable, or has changed a gradient while it was being reduced. No step has a message for that. So
such a rank sends a notice in place of the gradients of a bucket, and then all ranks send their *status*.
Afterwards all know the status of all, and decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horovod.common.exceptions import TensorMismatchError
from horovod.common.set_agreement import framed, frames, listed, ranks_text

DENSE, ABSENT, SPARSE, FROZEN = 1, 2, 4, 8
"""Kinds of gradients that a rank may have for a variable, as bits: those of several ranks are one number.
FROZEN: the variable is not trained. A notice says the same of a bucket of one variable.
"""

FAILED, UNSENT, DROPPED = "failed", "unsent", "dropped"
"""Why a rank makes no step: its backward pass has failed, it could not send a gradient, or the program has
dropped the gradients.
"""

_FAILURES = {FAILED: "The backward pass failed", UNSENT: "A gradient could not be submitted"}
_MOST_NAMES = 5


class News(NamedTuple):
    """What is out of the ordinary in a rank's step, besides its gradients. ``thawed``: variables that were
    frozen, and are trained from this step on, sorted. ``changed``: gradients that the program has changed
    while they were being reduced. ``given_up``: why the rank makes no step, empty if it does.
    """

    thawed: Sequence[str] = ()
    changed: Sequence[str] = ()
    given_up: str = ""


NO_NEWS = News()

STATUS_FOLLOWS, ALL_DROPPED = 16, 32
"""What else a notice may say: that its rank has more to tell, or has just dropped its gradients."""

SAY_IT_ALL = (ABSENT, SPARSE, ABSENT | SPARSE, FROZEN, ALL_DROPPED)
"""What notices have in which all ranks say all, and nothing is in conflict."""


def notice_of(kinds: Sequence[int], news: News) -> int:
    """What a notice says of a bucket whose variables have these kinds of gradients."""
    if news == News(given_up=DROPPED):
        return ALL_DROPPED
    return kinds[0] if len(kinds) == 1 and not any(news) and kinds[0] != DENSE else STATUS_FOLLOWS


class Status(NamedTuple):
    """What one rank tells: the kinds of gradients that it has for the variables of a bucket, and its news."""

    kinds: list[int]
    news: News


def encoded(kinds: Sequence[int], news: News) -> bytes:
    """The status of this rank, as it travels in an allgather."""
    return framed([kinds, news])


def decoded(gathered: bytes) -> dict[int, Status]:
    """The status of each rank."""
    return {rank: Status(kinds, News(*news)) for rank, (kinds, news) in sorted(frames(gathered))}


def found_kinds(names: Sequence[str], table: dict[int, Status]) -> list[int] | None:
    """The kinds that the ranks have for each of the variables ``names``; None if all have dropped their
    gradients.

    Raises:
        RuntimeError: a rank has changed a gradient in flight, or makes no step; on all ranks.
        TensorMismatchError: some ranks train a variable that others do not; on all ranks.
    """
    if _is_given_up({rank: status.news.given_up for rank, status in table.items()}):
        return None
    check_changed({rank: status.news.changed for rank, status in table.items() if status.news.changed})
    check_thawed({rank: status.news.thawed for rank, status in table.items()})
    found = []
    for place, name in enumerate(names):
        kinds = {rank: status.kinds[place] for rank, status in table.items()}
        _check_frozen(name, kinds)
        found.append(sum(set(kinds.values())))
    return found


def _is_given_up(reasons: dict[int, str]) -> bool:
    """Whether all ranks have dropped the gradients. Raises when some make no step and others do."""
    for failure, what in _FAILURES.items():
        failed = [rank for rank, reason in reasons.items() if reason == failure]
        if failed:
            raise RuntimeError(
                f"{what} on {ranks_text(failed)}, so all ranks give this step up. Call "
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


def check_changed(changed: dict[int, Sequence[str]]) -> None:
    """Raises if the program has changed gradients in flight; ``changed`` says which, by rank."""
    if changed:
        names = list(dict.fromkeys(name for theirs in changed.values() for name in theirs))
        shown = ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        raise RuntimeError(
            f"The gradient of {shown} was changed between loss.backward() and optimizer.step(), while it was "
            f"being reduced (on {ranks_text(list(changed))}). To clip, unscale or replace gradients, call "
            "optimizer.synchronize() first and optimizer.step() within optimizer.skip_synchronize(), or make "
            "the optimizer with synchronize_in_backward=True. If nothing changes it, its memory may be that "
            "of another parameter's gradient, as it is where the model adds views of both."
        )


def check_thawed(thawed: dict[int, Sequence[str]]) -> None:
    """Raises if the ranks have begun to train different variables, which ``thawed`` has, by rank."""
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
