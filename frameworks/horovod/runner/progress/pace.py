"""How fast a rank is, from what it has reported. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from horovod.bootstrap.store.reports import Report

_LEAST_SECONDS = 0.5  # for which rates mean anything


class Pace(NamedTuple):
    """Of one rank; None: not known. What it has told last, then rates: ``waiting`` is the share of its time
    in which it waits for operations, ``cores`` how many it keeps busy.
    """

    step: int | None = None
    steps: int | None = None
    epoch: float | None = None
    samples: float | None = None
    waited: float | None = None
    cpu: float | None = None
    memory: int | None = None
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    waiting: float | None = None
    cores: float | None = None


def pace(first: Report | None, window: Sequence[Report]) -> Pace:
    """``window`` are the last reports, the oldest first; ``first``: the first one that has told a step. Where
    no step has ended within the window, the steps since ``first`` count.
    """
    if not window:
        return Pace()
    begin, last = window[0], window[-1]
    known = Pace(*last[3:])
    seconds = last.time - begin.time
    if seconds < _LEAST_SECONDS:
        return known
    rated = known._replace(
        waiting=_within(0.0, (last.waited - begin.waited) / seconds, 1.0),
        cores=max(0.0, (last.cpu - begin.cpu) / seconds),
    )
    if first is None:
        return rated
    since = next((each for each in window if each.step is not None), last)
    if since.step == last.step:
        since = first
    return rated._replace(
        steps_per_second=_rate(since.step, last.step, last.time - since.time),
        samples_per_second=_rate(since.samples, last.samples, last.time - since.time)
        if last.samples
        else None,
    )


def is_anew(last: Report, report: Report) -> bool:
    """Whether a rank counts from the beginning, or goes on from elsewhere."""
    back = last.step is not None and report.step is not None and report.step < last.step
    return back or report.generation != last.generation or report.time <= last.time


def _rate(begin: float | None, end: float | None, seconds: float) -> float | None:
    return None if begin is None or end is None or seconds <= 0 else max(0.0, (end - begin) / seconds)


def _within(least: float, number: float, most: float) -> float:
    return min(most, max(least, number))
