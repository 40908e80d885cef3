"""A job that is stopped by its terminal, or by a script, and goes on."""

import os
import signal

import pytest

from horovod.runner import supervisor
from horovod.runner.ending import Ending
from horovod.runner.signals import SignalQueue
from horovod.runner.supervisor import Supervisor


class Host:
    """Its ranks need a while to stop, in which the user may have the job go on."""

    def __init__(self, goes_on: bool) -> None:
        self.goes_on = goes_on
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGSTOP and self.goes_on:
            signal.raise_signal(signal.SIGCONT)


class Loop:
    """Hands over what the queue has."""

    def __init__(self, queue: SignalQueue) -> None:
        self._queue = queue

    @property
    def continued(self) -> int:
        return self._queue.continued


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_launcher_stops_only_when_nobody_has_it_go_on(monkeypatch, goes_on: bool) -> None:
    own: list[int] = []
    monkeypatch.setattr(
        supervisor.os, "kill", lambda pid, number: own.append(number) if pid == os.getpid() else 0
    )
    queue, host = SignalQueue(), Host(goes_on)
    try:
        made = Supervisor(Loop(queue), [], {}, [], None, ending=Ending(grace=0.2))  # type: ignore[arg-type]
        made._nodes = [host]  # type: ignore[list-item]
        for _ in range(2):
            made._on_signal(signal.SIGTSTP)
            if not goes_on:
                signal.raise_signal(signal.SIGCONT)  # by the shell
            for number in queue.take():
                made._on_signal(number)
    finally:
        queue.close()
    assert own == ([] if goes_on else [signal.SIGSTOP] * 2)
    assert host.signals == [signal.SIGSTOP, signal.SIGCONT] * 2
