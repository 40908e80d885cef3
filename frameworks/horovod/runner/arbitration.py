"""Which rank, or which connection, ended the job. Pure: exits and the ranks' verdicts in, the cause out."""

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.bootstrap.store.verdicts import Kind, Verdict

from .ending import Exit


@dataclass(frozen=True)
class Cause:
    """Why the job failed.

    ``rank`` is the culprit, None when it is no single rank. ``exit`` is how the culprit ended of itself, None
    when it did not. ``verdict`` is what the ranks say, None when an exit tells all. ``untold``: it has ended,
    and nobody knows how. ``alive``: it was not heard, and complains of the rank that says so.
    """

    rank: int | None
    exit: Exit | None
    verdict: Verdict | None
    status: int
    untold: bool = False
    alive: bool = False


def arbitrate(first: Exit, exits: Sequence[Exit], verdicts: Sequence[Verdict]) -> Cause:
    """The first cause of a failure.

    ``first`` is the first exit that is not 0; ``exits`` are all that the launcher did not bring about, in the
    order in which it saw them; ``verdicts`` are in the order of their arrival, at most one of each observer.

    A host that is lost before any rank fails is the cause. A rank that fails after it has blamed another one
    is not: the trail leads on to the one that it blamed, until one that blamed nobody. Where a rank was told
    that it is to blame itself, or the trail ends at a connection or at nobody, the verdict is the cause.
    Ranks that blame each other in a circle leave the verdict that came first. Who is not heard by one rank
    sees the links end that this one closes: silence comes before a broken link between the same ranks.
    """
    if first.lost:  # what its ranks say now, they say of the end that the launcher made of the others
        return Cause(first.rank, first, None, first.status)
    said = {verdict.observer: verdict for verdict in verdicts}
    rank = first.rank
    trail: list[int] = []
    verdict: Verdict | None = None
    while rank in said and rank not in trail:
        trail.append(rank)
        verdict = said[rank]
        if verdict.kind == Kind.LINK:
            silence = _silence_before(verdict, verdicts)
            return Cause((silence or verdict).culprit, None, silence or verdict, first.status, alive=True)
        if verdict.culprit in (None, rank):
            return Cause(verdict.culprit, None, verdict, first.status)
        assert verdict.culprit is not None
        rank = verdict.culprit
    if rank in trail:
        earliest = next(item for item in verdicts if item.observer in trail)
        assert earliest.culprit is not None
        is_alive = said[earliest.culprit].culprit == earliest.observer
        return Cause(earliest.culprit, None, earliest, first.status, alive=is_alive)
    exit = next((exit for exit in exits if exit.rank == rank), None)
    if exit is not None and exit.untold:
        return Cause(rank, None, verdict, first.status, untold=True)
    if exit is not None and exit.code != 0:
        return Cause(rank, exit, None, exit.status)
    return Cause(rank, exit, verdict, first.status)


def _silence_before(link: Verdict, verdicts: Sequence[Verdict]) -> Verdict | None:
    ends = {link.culprit, link.other}
    silent = (item for item in verdicts if item.kind == Kind.SILENT and {item.observer, item.culprit} == ends)
    return next(silent, None)
