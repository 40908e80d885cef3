"""make demo shows on a terminal how far a training is, and nothing of it in a pipe."""

import importlib
import io
import sys
from pathlib import Path

import pytest

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
TRAINING = """
import json, sys
report = sys.argv[sys.argv.index("--json") + 1]
line = {"processes": 1, "loss": 0.5, "seconds": 1, "accuracy": 1, "samples_per_s": 9, "identical": True}
for epoch in (1, 2):
    print(f"[0]<stdout>:epoch {epoch:2}  loss 0.5000  accuracy 100.0%  9 samples/s")
open(report, "w").write(json.dumps(line) + "\\n")
sys.exit(STATUS)
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    yield importlib.import_module("demo")
    del sys.modules["demo"]


def train(demo, tmp_path, monkeypatch, status, stdout):
    (tmp_path / "training.py").write_text(TRAINING.replace("STATUS", str(status)))
    monkeypatch.setattr(demo, "EXAMPLE", tmp_path / "training.py")
    monkeypatch.setattr(sys, "stdout", stdout)
    return demo.train(1, 2, tmp_path)


@pytest.mark.parametrize("stdout", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_epochs_are_shown_on_a_terminal_alone(demo, tmp_path, monkeypatch, stdout):
    assert train(demo, tmp_path, monkeypatch, 0, stdout).losses == [0.5]
    texts = [line.strip() for line in stdout.getvalue().split("\r\033[K")]
    progress = [f"1 process    epoch {epoch} of 2  loss 0.5000" for epoch in (1, 2)]
    shown = ["", "1 process    starting", *progress, ""]
    assert texts == (shown if stdout.isatty() else [""])


def test_a_failed_training_is_shown_whole(demo, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"(?s)epoch  1 .*epoch  2 .*ended with status 3"):
        train(demo, tmp_path, monkeypatch, 3, io.StringIO())
