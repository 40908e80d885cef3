"""A job that is stopped by its terminal, or by a script, and goes on."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from load import within

from horovod.runner.ending import Ending
from horovod.runner.signals import SignalQueue
from horovod.runner.supervisor import Supervisor


class Host:
    """Its ranks need a while to stop, in which the user has the job go on."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGSTOP:
            signal.raise_signal(signal.SIGCONT)


class Loop:
    """Hands over what the queue has."""

    def __init__(self, queue: SignalQueue) -> None:
        self._queue = queue
        self.stop = queue.stop

    @property
    def continued(self) -> int:
        return self._queue.continued


def test_a_job_that_is_to_go_on_while_its_ranks_stop_goes_on() -> None:
    queue, host = SignalQueue(), Host()
    try:
        made = Supervisor(Loop(queue), [], {}, [], None, ending=Ending(grace=0.2))  # type: ignore[arg-type]
        made._nodes = [host]  # type: ignore[list-item]
        for _ in range(2):
            made._on_signal(signal.SIGTSTP)
            for number in queue.take():
                made._on_signal(number)
    finally:
        queue.close()
    assert host.signals == [signal.SIGSTOP, signal.SIGCONT] * 2


_STOPS = """
import os, signal, sys
from horovod.runner.signals import SignalQueue
queue, kill = SignalQueue(), signal.pthread_kill
own = signal.getsignal(signal.SIGTSTP)

def kill_and_go_on(*words):
    if sys.argv[1] == "before":
        os.kill(os.getpid(), signal.SIGCONT)
    kill(*words)
    if sys.argv[1] == "pending":
        os.kill(os.getpid(), signal.SIGCONT)

signal.pthread_kill = kill_and_go_on
print("stops", flush=True)
queue.stop(0)
print(queue.continued, signal.getsignal(signal.SIGTSTP) is own)
"""


@pytest.mark.parametrize("has_shell", [True, False])
@pytest.mark.parametrize("comes", ["before", "pending", "later"])
def test_a_process_never_stops_after_it_was_to_go_on(comes: str, has_shell: bool) -> None:
    begin = os.setpgrp if has_shell else os.setsid
    words = [sys.executable, "-c", _STOPS, comes]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=begin) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "stops\n"
            if comes == "later":
                end = time.monotonic() + within(10)
                while psutil.Process(process.pid).status() != ("stopped" if has_shell else "sleeping"):
                    assert time.monotonic() < end
                process.send_signal(signal.SIGCONT)
            assert process.wait(within(10)) == 0 and process.stdout.read() == "1 True\n"
        finally:
            process.kill()
            process.send_signal(signal.SIGCONT)
