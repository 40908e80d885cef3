"""Layer C: what ranks disagree about."""

import re

from fault_case import case
from stage import Stage
from trial import Trial

TRANSPORTS = ("shm", "tcp")
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "4"}


def _on_both(stage: Stage, ranks: int, scene: str, *arguments: object) -> list[Trial]:
    trials = []
    for transport in TRANSPORTS:
        job = stage.job(ranks, scene, *arguments, env={"HOROVOD_TRANSPORT": transport})
        stage.succeeds(job, timeout=120)
        trials.append(job)
    return trials


def _mismatches(stage: Stage, scene: str) -> None:
    for job in _on_both(stage, 4, scene):
        learned = [float(each) for each in re.findall(r"learned it after ([\d.]+) s", job.output)]
        stage.seconds = max([stage.seconds or 0.0, *learned])


@case(46, "C", "ranks submit different shapes", limit=1.0, quick=True)
def shapes(stage: Stage) -> None:
    _mismatches(stage, "collective:shapes")


@case(47, "C", "ranks submit different types", limit=1.0)
def types(stage: Stage) -> None:
    _mismatches(stage, "collective:types")


@case(48, "C", "ranks submit different operations, reductions, roots", limit=1.0)
def kinds(stage: Stage) -> None:
    _mismatches(stage, "collective:kinds")


@case(49, "C", "ranks submit different factors or groups", limit=1.0)
def factors(stage: Stage) -> None:
    _mismatches(stage, "collective:factors")


@case(50, "C", "a rank spells a name differently (deadlock limit 4 s, not 60)", limit=10.0)
def names(stage: Stage) -> None:
    job = stage.job(3, "collective:names", env=STALLS)
    stage.fails(job, 1, "the job's status", "layer1.weigth.*whose name is the most like it")


@case(51, "C", "a rank leaves a tensor out (deadlock limit 4 s, not 60)", limit=10.0)
def skips(stage: Stage) -> None:
    job = stage.job(3, "collective:skips", env=STALLS)
    stage.fails(job, 1, "the job's status", "'w3'.*not by rank 1", "'w4'")


@case(52, "C", "ranks submit the same tensors in different orders")
def orders(stage: Stage) -> None:
    _on_both(stage, 3, "collective:orders", 1000)


@case(53, "C", "a name is submitted twice", limit=1.0, quick=True)
def duplicate(stage: Stage) -> None:
    _on_both(stage, 3, "collective:duplicate")


@case(54, "C", "100,000 names")
def many_names(stage: Stage) -> None:
    stage.succeeds(stage.job(2, "collective:many_names", 100_000), timeout=240)


@case(55, "C", "empty, scalar, strided, sparse tensors")
def awkward(stage: Stage) -> None:
    stage.succeeds(stage.job(2, "with_torch:shapes"))


def _check_of_a_step(stage: Stage, what: str, setting: tuple[str, str], found: str) -> None:
    job = stage.job(3, "with_torch:spoiled_step", what, env=dict([setting]))
    job.must_end(1, "the job's status is 1")
    told = re.findall(rf"\[([\d,-]+)\]<stderr>:.*{found}", job.output)
    assert _ranks(told) == {0, 1, 2}, job.output


def _ranks(prefixes: list[str]) -> set[int]:
    """Of lines that one or several ranks have written."""
    found = set()
    for span in ",".join(prefixes).split(","):
        first, _, last = span.partition("-")
        found |= set(range(int(first), int(last or first) + 1)) if span else set()
    return found


@case(57, "C", "a gradient of one rank is not a number")
def not_a_number(stage: Stage) -> None:
    found = r"step 4 .*on rank 1 has NaN"
    _check_of_a_step(stage, "nan", ("HOROVOD_CHECK_NONFINITE", "1"), found)


@case(58, "C", "a parameter of one rank differs in its last bit")
def diverged(stage: Stage) -> None:
    _check_of_a_step(stage, "parameter", ("HOROVOD_CHECK_PARAMETERS_EVERY", "3"), r".*rank 1\b")


@case(59, "C", "uneven batches and join")
def join(stage: Stage) -> None:
    _on_both(stage, 4, "collective:join")


@case(60, "C", "overlapping process sets, strangers to them, removed ones", limit=1.0)
def sets(stage: Stage) -> None:
    _on_both(stage, 4, "collective:sets")


@case(62, "C", "tensors are forgotten while they are in flight")
def freed(stage: Stage) -> None:
    stage.succeeds(stage.job(2, "with_torch:freed_early"))
