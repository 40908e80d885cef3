"""The discovery script of an elastic job, as it is run beside everything else."""

import os
import selectors
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from load import within

from horovod.runner.elastic.discovery import Discovery


class Children:
    """Of this process; the loop's take all signals of theirs."""

    def expect(self, pid: int, is_tool: bool) -> None:
        pass

    def take_code(self, pid: int) -> int | None:
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None


@pytest.fixture
def loop() -> Iterator[Any]:
    with selectors.DefaultSelector() as selector:
        yield SimpleNamespace(selector=selector, children=Children())


@pytest.mark.parametrize("child", ["sleep 60", "yes localhost:2"])
def test_what_a_script_leaves_behind_holds_nobody_up(loop: Any, tmp_path: Path, child: str) -> None:
    """It keeps the output of the script open, and may write all the time."""
    script = tmp_path / "discover"
    script.write_text(f"#!/bin/sh\necho localhost:2\n{child} &\necho $! > {tmp_path}/pid\n")
    script.chmod(0o700)
    warnings: list[str] = []
    discovery = Discovery(loop, [str(script)], None, warnings.append)
    watchdog = threading.Timer(within(8.0), lambda: os.kill(os.getpid(), signal.SIGALRM))
    watchdog.start()
    try:
        deadline = time.monotonic() + within(5.0)
        found = None
        while found is None and not warnings:
            assert time.monotonic() < deadline
            for key, _ in loop.selector.select(0.01):
                key.data()
            found = discovery.tend(time.monotonic())
        assert child != "sleep 60" or found == {"localhost": 2}
        assert not loop.selector.get_map()
    finally:
        watchdog.cancel()
        discovery.close()
        if child == "sleep 60":
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
