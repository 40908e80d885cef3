"""What the workers that failed make of the status of a job. Pure."""

from collections.abc import Sequence

from .decisions import Attempt, End

HOPELESS = 2
"""A job that goes on from disk is not started again when so many generations have failed in the same way,"""
SOON_SECONDS = 300.0
"""each within this time."""


def failures(attempts: Sequence[Attempt], generation: int) -> list[Attempt]:
    """Those of one generation."""
    return [each for each in attempts if each.generation == generation]


def outcome(attempts: Sequence[Attempt], generation: int) -> End:
    """Of a job that nobody works for any more, and that some have ended with status 0 in this generation."""
    for attempt in failures(attempts, generation):
        if attempt.is_own:
            who = f"worker {attempt.worker}" if attempt.rank is None else f"rank {attempt.rank}"
            return End(attempt.status, f"{who} has failed, and the others have ended in good order")
    return End(0, "")


def first_status(attempts: Sequence[Attempt]) -> int:
    """Of a job that fails: that of the first who failed in the last generation in which somebody did, and
    rather not of those whom the job has ended. One that ended in order was no success either.
    """
    failed = [attempt for attempt in attempts if attempt.status]
    failed = [attempt for attempt in failed if not attempt.was_ended] or failed
    return next((each.status for each in failed if each.generation == failed[-1].generation), 1)


def nobody_left(had_state: bool) -> str:
    """Why a job cannot go on; ``had_state``: some worker had the state of the training, which is lost."""
    if had_state:
        return "no worker is left that has the state of the training"
    return (
        "no worker is left, and none has come to train in a function with @hvd.elastic.run: only from there "
        "a job goes on"
    )


def fail_soon(attempts: Sequence[Attempt], generation: int, count: int = 1) -> bool:
    """Whether the last so many generations have ended by errors of their own, soon after they had begun:
    others that go on from the same place would, too.
    """
    ends = [failures(attempts, number) for number in range(generation, generation - count, -1)]
    return all(end and all(each.is_own and each.lived < SOON_SECONDS for each in end) for end in ends)
