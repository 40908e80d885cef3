"""How a rank finds the signal at which it shows its stacks."""

import faulthandler
import signal
from pathlib import Path

import pytest

from horovod.common import stacks


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No signal was chosen yet; returns those that are registered."""
    registered: list[int] = []
    monkeypatch.setattr(stacks._Watch, "signal", 0)
    monkeypatch.setattr(faulthandler, "register", lambda number, **_: registered.append(number))
    return registered


def _status(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)


def test_one_that_nobody_uses_is_taken(fresh: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    used = signal.SIGRTMAX - 8
    _status(monkeypatch, f"Name:\tpython\nSigCgt:\t{1 << used - 1:016x}\n")
    assert stacks._signal_without_lock() == used - 1
    assert fresh == [used - 1]


@pytest.mark.parametrize("text", ["", "SigCgt:", "SigCgt:\tmany"])
def test_none_is_taken_where_nobody_tells(
    fresh: list[int], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    _status(monkeypatch, text)
    assert stacks._signal_without_lock() == 0
    assert fresh == []


def test_none_is_taken_without_proc(fresh: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError("no /proc here")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert stacks._signal_without_lock() == 0
    assert fresh == []
