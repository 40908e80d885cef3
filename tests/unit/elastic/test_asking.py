"""The signals by which a worker is asked to end, in the worker and in the processes that it starts."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from horovod.elastic import preemption


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(preemption, "elastic_membership", lambda: SimpleNamespace(leave=lambda: True))
    monkeypatch.setattr(preemption, "_is_asked", False)
    monkeypatch.setenv("HOROVOD_PREEMPTION_SIGNAL", "USR1")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    yield
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)) == before


@pytest.fixture
def asked_at_each_line():
    """SIGTERM comes before each line of the module and of threading that runs: within the handler, too."""
    names = (preemption.__file__, threading.__file__)

    def trace(frame, event, _):
        if event == "line":
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGTERM)
            sys.settrace(trace)
        return trace if frame.f_code.co_filename in names else None

    def give_up(*_):
        raise TimeoutError("the handler waits for itself")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 20)
    yield lambda: sys.settrace(trace)
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.settrace(None)
    signal.signal(signal.SIGALRM, before)


def tell_and_sleep(descriptor):
    os.write(descriptor, b"!")
    time.sleep(300)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_worker_notes_that_it_is_asked(worker, number):
    with preemption.heard():
        os.kill(os.getpid(), number)
        assert preemption.is_asked()


def test_a_worker_may_be_asked_again_while_it_notes_it(worker, asked_at_each_line):
    """By its engine and by the guard, when the launcher has died."""
    with preemption.heard():
        asked_at_each_line()
        os.kill(os.getpid(), signal.SIGTERM)
        sys.settrace(None)
        assert preemption.is_asked()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_process_that_a_worker_has_forked_ends_as_ever(worker, number):
    """Such as those of a pool, which are ended by SIGTERM."""
    with preemption.heard():
        here, there = os.pipe()
        child = multiprocessing.get_context("fork").Process(target=tell_and_sleep, args=(there,))
        child.start()
        assert os.read(here, 1)  # Python loses signals that come while it forks
        os.close(here)
        os.close(there)
        os.kill(child.pid, number)
        child.join(60)
        code = child.exitcode
        child.kill()
        assert code == -number and not preemption.is_asked()
        os.kill(os.getpid(), number)
        assert preemption.is_asked()  # the worker itself still hears


def test_who_is_asked_while_it_waits_for_others_leaves_at_once(worker):
    with preemption.heard():
        with pytest.raises(preemption.Leaving) as left, preemption.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        assert left.value.code == 143
        with pytest.raises(preemption.Leaving), preemption.at_once():
            raise AssertionError("it was asked before")
