"""Which processes of a job are asked for their stacks, and what is told of the others."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from load import within

from horovod.runner.nodes import stacks

RT, ABRT, TERM = (1 << number - 1 for number in (signal.SIGRTMAX - 8, signal.SIGABRT, signal.SIGTERM))
HIGH = signal.SIGRTMAX - 8
# 1 is horovodrun; 2 and 3 are what it has started.
PARENTS = {2: 1, 3: 1, 4: 2, 5: 4, 6: 4, 1: 0}


def test_a_rank_answers_its_real_time_signal_and_its_workers_are_spared() -> None:
    assert stacks.chosen({2: RT | ABRT, 4: RT | ABRT, 5: RT}, PARENTS) == {2: HIGH}


def test_behind_a_wrapper_the_rank_answers() -> None:
    assert stacks.chosen({2: 0, 4: RT}, PARENTS) == {4: HIGH}
    assert stacks.chosen({2: ABRT, 4: RT, 5: ABRT}, PARENTS) == {4: HIGH}  # the wrapper is a Python, too


def test_who_is_in_a_job_answers_also_below_one_that_has_only_imported_it() -> None:
    caught = {2: RT | ABRT, 4: RT | ABRT, 5: RT}
    assert stacks.chosen(caught, PARENTS, engines={4}) == {2: HIGH, 4: HIGH}


def test_who_is_in_a_job_has_a_thread_that_is_called_so() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b'hvd-engine'); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        assert stacks._has_engine(process.pid) and not stacks._has_engine(os.getpid())
        process.communicate(b"\n")


def test_without_a_descriptor_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> list[str]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "listdir", refuse)
    assert stacks.show([os.getpid()]) == {os.getpid(): []}


def test_ranks_of_another_launcher_each_answer() -> None:
    assert stacks.chosen({2: TERM | ABRT, 5: RT, 6: ABRT}, {2: 1, 5: 2, 6: 2}) == {5: HIGH, 6: signal.SIGABRT}


def test_before_init_a_python_is_asked_as_it_would_die_anyhow() -> None:
    assert stacks.chosen({2: ABRT, 4: ABRT}, PARENTS) == {2: signal.SIGABRT}
    assert stacks.chosen({2: ABRT | TERM}, PARENTS) == {}  # it may have something to save
    assert stacks.chosen({2: 0, 3: TERM}, PARENTS) == {}


def test_another_real_time_signal_of_the_program_is_not_raised() -> None:
    below = 1 << signal.SIGRTMAX - 10
    above = 1 << signal.SIGRTMAX - 7
    assert stacks.chosen({2: RT | above | below}, PARENTS) == {2: HIGH}


def test_a_program_that_shows_none_is_told_of() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert stacks.show([process.pid]) == {process.pid: []}
        deadline = time.monotonic() + within(10)  # it may still be on its way to its sleep
        while "state S" not in (where := stacks.whereabouts(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert where.startswith("sleep is in state S (sleeping)")
    finally:
        process.kill()
        process.wait()
    assert stacks.whereabouts(process.pid) == "it has ended"


# A mutex that is locked twice: native code that waits for ever, whatever signal comes, with the lock held.
HOLD = (
    "import ctypes; mutex = ctypes.create_string_buffer(64); lock = ctypes.PyDLL(None).pthread_mutex_lock; "
    "lock(mutex); lock(mutex)"
)
REGISTER = "import faulthandler as f, signal; f.register(signal.SIGRTMAX - 8, all_threads=True)"


@pytest.mark.parametrize(("before", "code"), [("pass", -signal.SIGABRT), (REGISTER, -signal.SIGKILL)])
def test_a_python_shows_its_stacks_also_with_the_interpreter_lock_held(before: str, code: int) -> None:
    script = f"{before}\ndef deep():\n    print(1, flush=True); {HOLD}\ndeep()"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert process.stdout is not None and process.stdout.readline() == b"1\n"
    assert stacks.show([process.pid]) == {process.pid: [process.pid]}
    assert process.stderr is not None
    while b"in deep" not in (line := process.stderr.readline()):
        assert line
    if code == -signal.SIGKILL:  # it lives on
        process.kill()
    process.communicate()
    assert process.returncode == code
