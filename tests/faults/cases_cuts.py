"""Layers N and E between two hosts: what befalls their network, for how long, in static and elastic jobs."""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cases_hosts import ONE_OF, Cluster, cluster
from fault_case import case
from stage import Stage
from trial import WRONG_RESULT, Trial

FIRST_NUMBER = 301
ALL = (("*", "*"),)
BETWEEN = ((0, 1), (1, 0))
AROUND = ((1, "*"), ("*", 1))  # a host and all others, the launcher too
CUT = {"cut": 1.0}
BROKEN_LINK = "the data link between .* broke while both were alive"
NO_STATE = "no worker is left that has the state of the training"
# Of what ranks and launcher say, what names the cause.
CAUSE = re.compile(r"^(?:horovodrun: (?:rank|host|the )|.*info: '.*' was not completed).*", re.MULTILINE)
NAMES = re.compile(r"ranks? \d+(?:, \d+)*|host [\d.]+")
BEGINS = re.compile(r"rank \d of \d begins at step (\d+) at ([\d.]+)")


@dataclass(frozen=True)
class Fault:
    """``changes`` of the paths of a network, see ``switch.Path``; none: its busiest connection is cut.

    ``ends`` and ``elastic_ends`` are headlines of jobs that end because of it; "": none does.
    """

    title: str
    seconds: int
    changes: dict[str, float] = field(default_factory=dict)
    paths: Sequence[tuple[int | str, int | str]] = ALL
    ends: str = ""
    elastic_ends: str = ""
    limit: float | None = None
    local_size: int = 2

    def begin(self, made: Cluster, job: Trial) -> dict[str, float]:
        """Returns the changes that it has made."""
        changes = self.changes or {"port": made.data_port()}
        job.fault_at = time.time()
        for source, target in self.paths:
            made.rule(source, target, **changes)
        return changes


def lost(title: str, ends: str, elastic_ends: str = "", **options: object) -> list[Fault]:
    """What no job notices for 3 s, and every job after 30 s."""
    long = Fault(title, 30, ends=ends, elastic_ends=elastic_ends, limit=14.0, **options)
    return [Fault(title, 3, **options), long]


NO_AGENT = r"host 10\.77\.0\.{} of ranks \d, \d: its agent has not answered"
FAULTS = [
    *lost("one data connection carries nothing", BROKEN_LINK),
    *lost("two hosts are cut off from each other", ONE_OF, changes=CUT, paths=BETWEEN),
    *lost("one host does not hear the other", rf"{ONE_OF}|works one way only", changes=CUT, paths=((0, 1),)),
    *lost("one host reaches nobody", NO_AGENT.format(2), changes=CUT, paths=AROUND),
    *lost("nobody reaches anybody", NO_AGENT.format("[12]"), NO_STATE, changes=CUT),
    Fault("every 20th packet is lost", 10, {"loss": 0.05}),
    Fault("packets come out of order and twice", 10, {"overtake": 0.25, "twice": 0.05, "delay": 0.02}),
    Fault("packets are 0.2 s late", 10, {"delay": 0.2}),
    Fault("bits are wrong", 10, {"corrupt": 0.02}, ((0, 1),), "sent corrupt data", limit=8.0),
]
PAIR = Fault("two hosts of one rank are cut off from each other", 30, CUT, BETWEEN, ONE_OF, local_size=1)


def culprit(job: Trial) -> str:
    """Whom the launcher, or a rank that goes on, names first."""
    found = CAUSE.search(job.output)
    return ", ".join(dict.fromkeys(NAMES.findall(found[0]))) if found else ""


def play(fault: Fault, stage: Stage, is_elastic: bool) -> None:
    """The job goes on for a while after the fault, if it can."""
    seconds = fault.seconds + 12
    with cluster(stage) as made:
        if is_elastic:
            fewest = ("--min-np", str(fault.local_size))
            job = made.job(
                "elastic_hosts:steps", seconds, local_size=fault.local_size, options=fewest,
                HOROVOD_LOG_LEVEL="info",
            )  # fmt: skip
        else:
            job = made.job("network:go_on", seconds)
        job.running()
        changes = fault.begin(made, job)
        heals = threading.Timer(fault.seconds, made.rule, ("*", "*"), dict.fromkeys(changes, 0.0))
        heals.start()
        try:
            judge(fault, stage, job, is_elastic)
        finally:
            stage.culprit = culprit(job)
            heals.join()
        job.must_be_clean()  # while there is a network: without one, ranks wait longer for the launcher


def judge(fault: Fault, stage: Stage, job: Trial, is_elastic: bool) -> None:
    """The job ends with the cause, or goes on with all that it had committed."""
    headline = fault.elastic_ends if is_elastic else fault.ends
    if headline:
        stage.fails(job, 1, headline, timeout=60)
    elif not is_elastic:
        stage.succeeds(job, timeout=60)
    else:
        assert job.end(timeout=90) == 0 and WRONG_RESULT not in job.output, job.output
        first, again = begun(job, 2 * fault.local_size)
        assert first == {0} and all(step >= 5 for step, _ in again), job.output
        assert bool(again) == bool(fault.ends), job.output
        stage.seconds = again[0][1] - job.fault_at if again else None


def begun(job: Trial, ranks: int) -> tuple[set[int], list[tuple[int, float]]]:
    """At which steps the first generation began, and the later ones, with the times."""
    found = [(int(match[1]), float(match[2])) for match in BEGINS.finditer(job.output)]
    return {step for step, _ in found[:ranks]}, found[ranks:]


def enter() -> None:
    """The rows of the table."""
    rows = [(fault, is_elastic) for fault in FAULTS for is_elastic in (False, True)]
    for number, (fault, is_elastic) in enumerate([*rows, (PAIR, True)], FIRST_NUMBER):
        title = f"{'elastic' if is_elastic else 'static'}: {fault.title} for {fault.seconds} s"
        limit = fault.limit if fault.elastic_ends or not is_elastic else None
        case(number, "E" if is_elastic else "N", title, limit)(
            functools.partial(play, fault, is_elastic=is_elastic)
        )


enter()
