"""How a rank finds the signal at which it shows its stacks, and the calls that it shows."""

import faulthandler
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from load import within

from horovod.common import stacks


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that stands for /proc/self/status."""
    monkeypatch.setattr(stacks, "_STATUS", tmp_path / "status")
    return tmp_path / "status"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No signal was chosen yet; returns those that are registered."""
    registered: list[int] = []
    monkeypatch.setattr(stacks._Watch, "signal", 0)
    monkeypatch.setattr(faulthandler, "register", lambda number, **_: registered.append(number))
    return registered


def test_one_that_nobody_uses_is_taken(fresh: list[int], status: Path) -> None:
    used = signal.SIGRTMAX - 8
    status.write_text(f"Name:\tpython\nSigCgt:\t{1 << used - 1:016x}\n")
    assert stacks._signal_without_lock() == used - 1
    assert fresh == [used - 1]


def test_one_that_the_program_takes_later_is_left_to_it(fresh: list[int], status: Path) -> None:
    status.write_text("SigCgt:\t0\n")
    first = stacks._signal_without_lock()
    previous = signal.signal(first, lambda *_: None)
    try:
        status.write_text(f"SigCgt:\t{1 << first - 1:016x}\n")
        assert stacks._signal_without_lock() == first - 1
    finally:
        signal.signal(first, previous)
    assert fresh == [first, first - 1]


@pytest.mark.parametrize("text", ["", "SigCgt:", "SigCgt:\tmany"])
def test_none_is_taken_where_nobody_tells(fresh: list[int], status: Path, text: str) -> None:
    status.write_text(text)
    assert stacks._signal_without_lock() == 0
    assert fresh == []


def test_none_is_taken_without_proc(fresh: list[int], status: Path) -> None:
    assert not status.exists()
    assert stacks._signal_without_lock() == 0
    assert fresh == []


def _called_from(file: str, depth: int) -> Callable[..., FrameType]:
    """A function of that file, which calls itself ``depth`` times then the one it is handed."""
    source = "def descend(depth, then):\n    return then() if depth == 0 else descend(depth - 1, then)\n"
    scope: dict[str, Callable[..., FrameType]] = {}
    exec(compile(source, file, "exec"), scope)
    return lambda then: scope["descend"](depth, then)


@pytest.mark.parametrize("depth", [1, 20])
def test_the_call_of_the_program_is_shown_above_those_of_a_library(depth: int) -> None:
    library = _called_from("/venv/lib/python3/site-packages/keras/trainer.py", depth)
    frame = library(sys._getframe)
    lines = stacks.describe(1, {threading.main_thread().ident or 0: frame}).splitlines()
    of_library = ["keras/trainer.py" in line for line in lines]
    first = of_library.index(True)
    assert __file__ in lines[first - 1] and of_library[first:] == [True] * min(depth + 1, stacks._INNERMOST)


GARBAGE = """
import gc, threading
from horovod.common import stacks

class Holder:
    pass

for number in range(200):
    holder = Holder()
    holder.itself, holder.local = holder, threading.local()
    holder.local.value = number
    del holder
    gc.set_threshold(1)
    assert threading.get_ident() in stacks._frames()
    gc.set_threshold(10**6)
assert gc.isenabled()
gc.disable()
stacks._frames()
assert not gc.isenabled()
"""


def test_garbage_that_is_due_while_the_stacks_are_taken_holds_up_nobody() -> None:
    subprocess.run([sys.executable, "-c", GARBAGE], check=True, timeout=within(10))


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_program_without_stderr_goes_on_answering(
    core: Any, monkeypatch: pytest.MonkeyPatch, stream: str | None
) -> None:
    closed = io.StringIO()
    closed.close()
    requests = iter([True, True, False])
    monkeypatch.setattr(stacks, "_signal_without_lock", lambda: 0)
    monkeypatch.setattr(core, "await_stacks_request", lambda _: next(requests), raising=False)
    monkeypatch.setattr(sys, "stderr", None if stream is None else closed)
    stacks._answer()
    assert list(requests) == []
