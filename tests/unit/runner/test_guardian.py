"""A guard that a signal has stopped holds nobody up."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from horovod.runner.nodes import children as launchers_children
from horovod.runner.nodes import guard
from horovod.runner.nodes.guardian import Guardian

PIPE = 1 << 16  # bytes that nobody reads


class Children:
    """Those of the launcher: only guards."""

    def __init__(self) -> None:
        self.guards: list[tuple[int, Callable[[], None]]] = []

    def look_after(self, pid: int, on_end: Callable[[], None]) -> None:
        self.guards.append((pid, on_end))

    def reap(self) -> None:
        """Waits for the end of the latest one."""
        pid, on_end = self.guards[-1]
        os.waitpid(pid, 0)
        on_end()


@pytest.fixture
def children() -> Iterator[Children]:
    found = Children()
    yield found
    assert all(guard.look_at(pid) is None for pid, _ in found.guards)


def stopped(children: Any, said: list[str]) -> Guardian:
    guardian = Guardian("A=b", children, said.append)
    pid = children.guards[-1][0]
    os.kill(pid, signal.SIGSTOP)
    while not guard.is_stopped(pid):
        time.sleep(0.01)
    return guardian


@pytest.mark.timeout(60)
def test_the_end_of_a_job_does_not_wait_for_it(children: Children) -> None:
    stopped(children, []).dismiss()


@pytest.mark.timeout(60)
def test_another_one_takes_its_place_when_it_has_not_read_for_long(children: Children) -> None:
    """Else the launcher of a long job would stand still by and by."""
    said: list[str] = []
    guardian = stopped(children, said)
    for session in range(PIPE // 10):
        guardian.watch(10000 + session)
        guardian.forget(10000 + session)
    children.reap()
    (text,) = said
    assert f"process {children.guards[0][0]}, which would end the ranks" in text and "its place" in text
    guardian.dismiss()


def test_what_ends_after_a_guard_is_dismissed_is_told_to_nobody(children: Children) -> None:
    """An ssh of a start that has failed, while the next one runs."""
    guardian = Guardian("A=b", children, pytest.fail)  # type: ignore[arg-type]
    guardian.watch(77)
    guardian.dismiss()
    guardian.forget(77)


def test_a_number_that_is_used_again_has_no_code_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers_children, "_become_subreaper", lambda: None)
    known = launchers_children.Children()
    known._codes[77] = 0  # of an ssh that nobody has asked how it ended
    known.expect(77)
    assert known.take_code(77) is None
