"""Tracebacks fold the calls within this library, and leave exceptions as they are."""

import contextlib
import io
import pickle
import signal
import subprocess
import sys
import threading

import pytest

from horovod.bootstrap import tracebacks
from horovod.bootstrap.start_settings import start_timeout
from horovod.elastic.run import run_fn


class Given:
    """A state as elastic training has it, of a program."""

    def on_reset(self) -> None: ...
    def sync(self) -> None: ...


def wrong_setting() -> None:
    start_timeout({"HOROVOD_START_TIMEOUT": "never"})


def caught(call) -> BaseException:
    with pytest.raises(Exception) as info:
        call()
    return info.value


def test_calls_of_this_library_are_one_line():
    text = tracebacks.formatted(caught(wrong_setting))
    assert "in wrong_setting" in text and 'start_timeout({"HOROVOD' in text
    assert "start_settings.py" not in text
    lines = text.splitlines()
    folded = [line for line in lines if "within horovod; HOROVOD_FULL_TRACEBACK=1 shows them" in line]
    assert len(folded) == 1 and lines[-1].startswith("ValueError: ")
    assert lines.index(folded[0]) == len(lines) - 2


def test_calls_of_the_program_within_those_of_the_library_stay(monkeypatch):
    monkeypatch.setattr("horovod.elastic.run._tell_launcher", lambda state: None)
    train = run_fn(lambda state: wrong_setting())
    text = tracebacks.formatted(caught(lambda: train(Given())))
    assert text.count("within horovod") == 2 and "in <lambda>" in text and "in wrong_setting" in text
    assert "elastic/run.py" not in text


def test_the_causes_are_folded_too():
    def outer() -> None:
        try:
            wrong_setting()
        except ValueError as error:
            raise KeyError("of the program") from error

    text = tracebacks.formatted(caught(outer))
    assert "direct cause" in text and text.count("within horovod") == 1 and "start_settings.py" not in text


def test_a_setting_shows_all(monkeypatch):
    monkeypatch.setenv("HOROVOD_FULL_TRACEBACK", "1")
    text = tracebacks.formatted(caught(wrong_setting))
    assert "start_settings.py" in text and "within horovod" not in text


def test_a_fault_of_this_library_shows_where_it_is():
    text = tracebacks.formatted(caught(lambda: start_timeout(None)))  # type: ignore[arg-type]
    assert "AttributeError" in text and "start_settings.py" in text


def test_an_exception_stays_whole():
    error = caught(wrong_setting)
    before = error.__traceback__
    tracebacks.formatted(error)
    assert error.__traceback__ is before
    names = []
    while before is not None:
        names.append(before.tb_frame.f_code.co_name)
        before = before.tb_next
    assert "start_timeout" in names
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_a_program_with_a_hook_of_its_own_keeps_it(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", own := lambda *_: None)
    monkeypatch.setattr(threading, "excepthook", own)
    tracebacks.install()
    assert sys.excepthook is own and threading.excepthook is own


def test_threads_fold_too(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    tracebacks.install()
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        for call in (wrong_setting, sys.exit):
            thread = threading.Thread(target=call, name="loader")
            thread.start()
            thread.join()
    text = stderr.getvalue()
    assert text.startswith("Exception in thread loader:\nTraceback") and text.count("Traceback") == 1
    assert "within horovod" in text and "start_settings.py" not in text


def test_uncaught_exceptions_are_written_at_once(monkeypatch):
    class Stderr(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    tracebacks.install()
    error = caught(wrong_setting)
    with contextlib.redirect_stderr(Stderr()) as stderr:
        sys.excepthook(type(error), error, error.__traceback__)
    assert stderr.writes == 1 and "within horovod" in stderr.getvalue()


def test_a_program_that_forgets_init_has_them_folded():
    program = "from horovod.common import basics as hvd; hvd.rank()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    *_, folded, message = ended.stderr.splitlines()
    assert "[2 calls within horovod;" in folded and "basics.py" not in ended.stderr, ended.stderr
    assert message == "ValueError: Horovod has not been initialized; use hvd.init()."


def test_an_interrupt_ends_a_program_by_its_signal():
    program = "import os, signal; from horovod.bootstrap import tracebacks; tracebacks.install(); {}"
    for end, status in (("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT), ("1 / 0", 1)):
        ended = subprocess.run([sys.executable, "-c", program.format(end)], capture_output=True, text=True)
        assert ended.returncode == status, ended.stderr
        assert ended.stderr.startswith("Traceback (most recent call last):\n"), ended.stderr
