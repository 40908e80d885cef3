"""What a driver raises when ranks fail: the first cause. Pure but for the classes of Ray's exceptions."""

import re
from collections.abc import Mapping, Sequence

from ray.exceptions import RayActorError

from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.common.exceptions import HorovodInternalError
from horovod.runner.arbitration import Cause, arbitrate
from horovod.runner.ending import Exit
from horovod.runner.output import Tail
from horovod.runner.report import Failure, Process, failure_report

_STATUS = 1
_DETAIL = re.compile(r"Worker exit detail: (.*?)(?: There are some potential root causes|$)", re.MULTILINE)
_MOST_DETAIL = 300


class RankFailedError(RuntimeError):
    """A rank has ended, or the ranks cannot go on. ``rank`` is the one to blame, if there is one; the text
    names its node, and how it ended.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text, rank)
        self.rank = rank

    def __str__(self) -> str:
        return str(self.args[0])


def is_told(errors: Mapping[int, BaseException], verdicts: Sequence[Verdict]) -> bool:
    """Whether what is known of failed ranks, in the order in which they failed, leads to the first cause."""
    blamed = {verdict.culprit for verdict in verdicts if verdict.kind in (Kind.DIED, Kind.LEFT)}
    blamed -= {None}
    return bool(blamed & errors.keys()) or (not blamed and any(map(_is_own, errors.values())))


def failure_of(
    errors: Mapping[int, BaseException],
    verdicts: Sequence[Verdict],
    processes: Mapping[int, Process],
    tails: Mapping[tuple[int, str], Tail],
) -> BaseException:
    """What to raise.

    Args:
        errors: by rank, in the order in which they failed.
        verdicts: what the ranks hold for the cause.
        processes: all ranks.
        tails: their last output.

    Returns:
        What the function raised on the rank that failed first, or a RankFailedError.
    """
    cause = _cause(errors, verdicts)
    error = errors.get(-1 if cause.rank is None else cause.rank)
    if error is not None and not isinstance(error, (RayActorError, HorovodInternalError)):
        return error
    shown = next(iter(errors), 0) if cause.rank is None else cause.rank
    later = [rank for rank in errors if rank != cause.rank]
    stdout, stderr = (tails.get((shown, name), Tail()) for name in ("stdout", "stderr"))
    report = failure_report(Failure(cause, processes, later, ()), stdout, stderr).decode()
    text = re.sub("^horovodrun: ", "", report.strip(), flags=re.MULTILINE)
    failure = RankFailedError(text.replace(f"; the job's status is {_STATUS}", "", 1), cause.rank)
    failure.__cause__ = error or next(iter(errors.values()), None)
    return failure


def _cause(errors: Mapping[int, BaseException], verdicts: Sequence[Verdict]) -> Cause:
    died = [rank for rank, error in errors.items() if isinstance(error, RayActorError)]
    blamed = [verdict for verdict in verdicts if verdict.culprit in died]
    if blamed:  # the dead say nothing themselves
        return Cause(blamed[0].culprit, None, blamed[0]._replace(kind=Kind.DIED), _STATUS, untold=True)
    own = [rank for rank, error in errors.items() if _is_own(error)]
    if own and own[0] not in died:
        return Cause(own[0], Exit(own[0], _STATUS), None, _STATUS)
    if died:
        verdict = Verdict(died[0], Kind.DIED, died[0], _ended(errors[died[0]]))
        return Cause(died[0], None, verdict, _STATUS, untold=True)
    first = next(iter(errors), verdicts[0].observer if verdicts else 0)
    return arbitrate(Exit(first, _STATUS), [Exit(rank, _STATUS) for rank in errors], verdicts)


def _is_own(error: BaseException) -> bool:
    """Whether the rank has not failed because of others."""
    return not isinstance(error, HorovodInternalError)


def _ended(error: BaseException) -> str:
    """What Ray says of the end of an actor's process, in a sentence."""
    text = str(error)
    found = _DETAIL.search(text)
    return (found[1] if found else text.splitlines()[0])[:_MOST_DETAIL]
