"""When the ranks of a job are ended, and with which status: decisions only, no process."""

import signal

import pytest

from horovod.runner.ending import GRACE_SECONDS, REPORT_SECONDS, Ending, Exit


def _plan(ending: Ending) -> list[tuple[float, int]]:
    """All that will be sent, with the times."""
    plan = []
    while (time := ending.next_time()) != float("inf"):
        plan += [(time, number) for number in ending.due(time)]
    return plan


def test_success() -> None:
    ending = Ending()
    ending.on_exits([Exit(0, 0)], 1.0)
    ending.on_exits([Exit(1, 0)], 2.0)
    assert (ending.status, _plan(ending), ending.first_failure) == (0, [], None)


@pytest.mark.parametrize(("code", "status"), [(1, 1), (7, 7), (255, 255), (-9, 137), (-11, 139), (-15, 143)])
def test_status_is_that_of_the_first_failure(code: int, status: int) -> None:
    ending = Ending()
    ending.on_exits([Exit(2, code)], 10.0)
    ending.on_exits([Exit(0, 1), Exit(1, -9)], 10.5)
    assert ending.status == status and ending.first_failure == Exit(2, code)
    assert {exit.rank for exit in ending.later_failures} == {0, 1}
    report = 10.0 + REPORT_SECONDS
    assert _plan(ending) == [(report, signal.SIGTERM), (report + GRACE_SECONDS, signal.SIGKILL)]


def test_death_by_signal_beats_an_exit_status_seen_at_the_same_moment() -> None:
    ending = Ending()
    ending.on_exits([Exit(0, 1), Exit(1, 0), Exit(2, -9), Exit(3, -15)], 1.0)
    assert ending.first_failure == Exit(2, -9)
    assert ending.later_failures == [Exit(3, -15), Exit(0, 1)]


def test_ranks_that_the_launcher_ended_have_not_failed() -> None:
    ending = Ending()
    ending.on_exits([Exit(0, 3)], 0.0)
    assert ending.due(REPORT_SECONDS) == [signal.SIGTERM]
    ending.on_exits([Exit(1, -15)], REPORT_SECONDS)
    assert ending.later_failures == []


def test_interrupt_then_term_then_kill() -> None:
    ending = Ending()
    ending.on_signal(signal.SIGINT, 5.0)
    assert ending.due(4.9) == []
    assert [number for _, number in _plan(ending)] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    ending.on_exits([Exit(0, -2), Exit(1, 1)], 5.1)
    assert (ending.status, ending.first_failure) == (130, None)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ending_signals_are_passed_on(number: int, status: int) -> None:
    ending = Ending()
    ending.on_signal(number, 5.0)
    assert _plan(ending) == [(5.0, number), (5.0 + GRACE_SECONDS, signal.SIGKILL)]
    assert ending.status == status


def test_second_signal_kills_at_once() -> None:
    ending = Ending()
    ending.on_signal(signal.SIGTERM, 5.0)
    ending.due(5.0)
    ending.on_signal(signal.SIGINT, 6.0)
    assert _plan(ending) == [(6.0, signal.SIGKILL)] and ending.status == 143


def test_signal_after_a_failure_kills_and_keeps_the_cause() -> None:
    ending = Ending()
    ending.on_exits([Exit(1, 4)], 5.0)
    ending.on_signal(signal.SIGINT, 5.5)
    assert _plan(ending) == [(5.5, signal.SIGKILL)] and ending.status == 4


def test_other_signals_end_nothing() -> None:
    ending = Ending()
    ending.on_signal(signal.SIGUSR1, 1.0)
    ending.on_signal(signal.SIGCHLD, 1.0)
    assert _plan(ending) == [] and ending.status == 0
