"""make demo shows on a terminal alone how far a training is, and says if the machine is busy."""

import importlib
import io
import subprocess
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


@pytest.mark.parametrize(
    ("load", "runnable", "said"),
    [
        (2.0, 9, ""),
        (6.4, 9, "load 6.4 on 2 processors"),
        (6.4, 2, ""),  # a build that has just ended
    ],
)
def test_a_busy_machine_is_told_of(demo, monkeypatch, load, runnable, said):
    monkeypatch.setattr(demo.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(demo.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(demo, "runnable", lambda: runnable)
    told = demo.disturbance()
    assert said in told and bool(told) == bool(said)


def test_threads_that_want_a_processor_are_counted(demo):
    script = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as busy:
        try:
            busy.stdout.readline()
            assert demo.runnable() >= 1
        finally:
            busy.kill()
