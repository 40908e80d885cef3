"""When the ranks of a job are ended, and with which status: decisions only, no process."""

import signal

import pytest

from horovod.runner.ending import GRACE_SECONDS, REPORT_SECONDS, SHOW_STACKS, STACKS_SECONDS, Ending, Exit


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


def test_grace_is_what_the_user_says() -> None:
    for grace in (0.0, 60.0):
        failed, stopped, interrupted = (Ending(grace) for _ in range(3))
        failed.on_exits([Exit(0, 1)], 1.0)
        report = 1.0 + REPORT_SECONDS
        assert _plan(failed) == [(report, signal.SIGTERM), (report + grace, signal.SIGKILL)]
        stopped.on_signal(signal.SIGTERM, 1.0)
        assert _plan(stopped) == [(1.0, signal.SIGTERM), (1.0 + grace, signal.SIGKILL)]
        interrupted.on_signal(signal.SIGINT, 1.0)
        assert _plan(interrupted)[1] == (1.0 + grace, signal.SIGTERM)


def test_at_the_deadline_stacks_are_shown_and_all_end() -> None:
    ending = Ending(4.0, deadline=10.0)
    assert ending.next_time() == 10.0 and ending.due(9.9) == [] and not ending.has_timed_out
    assert ending.due(10.0) == [SHOW_STACKS] and ending.has_timed_out and ending.status == 124
    ending.on_exits([Exit(1, -6)], 10.1)  # a rank that died of showing them
    assert ending.first_failure is None and ending.own_exits == []
    end = 10.0 + STACKS_SECONDS
    assert _plan(ending) == [(end, signal.SIGTERM), (end + 4.0, signal.SIGKILL)]
    assert ending.status == 124


def test_a_job_that_is_ending_has_no_deadline() -> None:
    failed, stopped = Ending(deadline=10.0), Ending(deadline=10.0)
    failed.on_exits([Exit(0, 7)], 9.0)
    stopped.on_signal(signal.SIGTERM, 9.0)
    assert SHOW_STACKS not in [number for ending in (failed, stopped) for _, number in _plan(ending)]
    assert (failed.status, stopped.status) == (7, 143)


def test_a_signal_after_the_deadline_kills() -> None:
    ending = Ending(deadline=10.0)
    ending.due(10.0)
    ending.on_signal(signal.SIGINT, 10.5)
    assert _plan(ending) == [(10.5, signal.SIGKILL)] and ending.status == 124
