"""The discovery script of an elastic job, as it is run beside everything else."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from load import within

from horovod.runner.elastic import discovery
from horovod.runner.elastic.discovery import Discovery
from horovod.runner.nodes import guard


class Children:
    """Of this process; the loop's take all signals of theirs."""

    def expect(self, pid: int, is_tool: bool) -> None:
        pass

    def take_code(self, pid: int) -> int | None:
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None


class Guardian:
    """Knows what would be ended if this process were gone."""

    def __init__(self) -> None:
        self.watched: set[int] = set()
        self.forgotten: set[int] = set()

    mark: ClassVar = {"HVD_TEST_MARK": "3"}

    def watch(self, session: int) -> None:
        self.watched.add(session)

    def forget(self, session: int) -> None:
        self.forgotten.add(session)


class Script:
    """A discovery script at work. ``warnings`` are what the user is told."""

    def __init__(self, line: str, slots: int | None = None) -> None:
        self.selector = selectors.DefaultSelector()
        self.guardian: Any = Guardian()
        self.warnings: list[str] = []
        loop: Any = SimpleNamespace(selector=self.selector, children=Children())
        self.discovery = Discovery(loop, self.guardian, line, slots, self.warnings.append)

    def run(self, is_done: Callable[[object], object]) -> Any:
        """Until there is news that is wanted, which it returns."""
        deadline = time.monotonic() + within(5.0)
        found = None
        while not is_done(found):
            assert time.monotonic() < deadline, self.warnings
            for key, _ in self.selector.select(0.01):
                key.data()
            found = self.discovery.tend(time.monotonic())
        return found

    def hosts(self) -> Any:
        """Those of the first output that changes them."""
        return self.run(lambda found: found is not None)

    def warning(self) -> str:
        """The first one."""
        self.run(lambda found: self.warnings)
        return self.warnings[0]


@pytest.fixture
def start() -> Iterator[Callable[..., Script]]:
    scripts: list[Script] = []

    def new(*words: Any) -> Script:
        scripts.append(Script(*words))
        return scripts[-1]

    yield new
    for script in scripts:
        script.discovery.close()
        script.selector.close()


@pytest.mark.parametrize("child", ["sleep 60", "yes localhost:2", "yes oops >&2"])
def test_what_a_script_leaves_behind_holds_nobody_up(start: Any, tmp_path: Path, child: str) -> None:
    """It keeps the output of the script open, and may write all the time."""
    path = tmp_path / "discover"
    path.write_text(f"#!/bin/sh\necho localhost:2\n{child} &\necho $! > {tmp_path}/pid\n")
    path.chmod(0o700)
    script = start(str(path))
    watchdog = threading.Timer(within(8.0), lambda: os.kill(os.getpid(), signal.SIGALRM))
    watchdog.start()
    try:
        found = script.run(lambda found: found is not None or script.warnings)
        assert child == "yes localhost:2" or found == {"localhost": 2}
        assert not script.selector.get_map()
    finally:
        watchdog.cancel()
        script.discovery.close()
        with contextlib.suppress(ProcessLookupError):  # nobody takes what it writes
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "line",
    [
        "{0}/discover",
        "sh -c 'echo localhost:2'",
        "echo localhost 2 | tr ' ' ':'",
        "N=2; echo localhost:$N",
    ],
)
def test_a_script_is_a_line_for_the_shell(start: Any, tmp_path: Path, line: str) -> None:
    """A file of commands needs no first line that says who reads it."""
    (tmp_path / "discover").write_text("echo localhost:2\n")
    (tmp_path / "discover").chmod(0o700)
    script = start(line.format(tmp_path))
    assert script.hosts() == {"localhost": 2}
    assert not script.warnings
    assert script.guardian.watched == script.guardian.forgotten != set()


def test_what_a_script_says_of_its_failure_is_told_once(start: Any) -> None:
    commands = 'echo "$$: no connection" >&2; head -c 300000 /dev/zero | tr "\\0" x >&2; echo "\n\033[1m" >&2'
    script = start(f"{commands}; echo last >&2; exit 3")
    text = script.warning()
    assert "it ended with exit status 3 (" in text and "; last); the job waits for hosts" in text
    assert len(text) < 1000 and "\033" not in text
    script.run(lambda found: len(script.guardian.forgotten) == 2)
    assert script.warnings == [text]


def test_a_run_that_hangs_is_ended(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "RUN_SECONDS", 0.3)
    script = start("echo asks the cloud >&2; sleep 60")
    assert "it has not ended within 0.3 s (asks the cloud); the job" in script.warning()
    script.run(lambda found: script.guardian.forgotten)
    assert len(script.warnings) == 1


def test_a_run_that_nobody_may_end_is_waited_for(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of another user, under sudo."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(discovery, "RUN_SECONDS", 0.3)
    script = start("sleep 1; echo localhost:2")
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        assert "it has not ended within 0.3 s; the job" in script.warning()
        script.run(lambda found: script.guardian.forgotten)


def test_hosts_that_go_and_come(start: Any, tmp_path: Path) -> None:
    listing = tmp_path / "hosts"
    listing.write_text("a:1\n")
    script = start(f"cat {listing}")
    assert script.hosts() == {"a": 1}
    listing.write_text("")
    assert script.hosts() == {}
    assert "it lists no host with slots; the job waits for hosts" in script.warning()
    listing.write_text("a:2\n")
    assert script.hosts() == {"a": 2}


def test_a_script_is_marked_before_anybody_watches_it() -> None:
    assert Script("echo a:$HVD_TEST_MARK").hosts() == {"a": 3}


def test_a_script_ends_with_its_launcher(tmp_path: Path) -> None:
    """However that ends."""
    listing = f"echo $$ > {tmp_path}/pid; sleep 60"
    options = ("-np", "1", "--host-discovery-script", listing)
    launcher = subprocess.Popen([sys.executable, "-m", "horovod.runner.launch", *options, "true"])
    try:
        deadline = time.monotonic() + within(10.0)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        pid = int((tmp_path / "pid").read_text())
    finally:
        launcher.kill()
        launcher.wait()
    deadline = time.monotonic() + within(5.0)
    while guard.in_session(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_variable_says_how_long_a_job_waits_for_hosts() -> None:
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", "1", "--host-discovery-script", "true"]
    words.append("true")
    environment = {**os.environ, "HOROVOD_ELASTIC_TIMEOUT": "0.5"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=within(20))
    assert result.returncode == 1 and "for 0.5 s there were too few workers" in result.stderr
