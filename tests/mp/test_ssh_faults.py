"""horovodrun with an ssh that is slow, silent or stuck: a program in its place, which needs no sshd."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from launch import Launcher
from load import within


class Ssh(Launcher):
    """Starts jobs whose "ssh" is a script, in which $command is what is to run on the other host."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._program = folder / "ssh"
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"

    def does(self, script: str) -> None:
        self._program.write_text(f'#!/bin/bash\ncommand="${{@: -1}}"\n{script}\n')
        self._program.chmod(0o755)

    def agents(self) -> list[int]:
        """Those that have ranks."""
        found = [process for process in map(psutil.Process, self.survivors()) if _is_agent(process)]
        return [process.pid for process in found if process.children()]


def _is_agent(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[-1].endswith("agent.main()")
    except (psutil.Error, IndexError):
        return False


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Ssh]:
    ssh = Ssh(tmp_path)
    yield ssh
    ssh.wait_until_gone(3.0)


def test_a_slow_start_of_another_host_is_waited_for(ssh: Ssh) -> None:
    """As that of Python on a file system that all hosts share."""
    ssh.does('sleep 9; eval "$command"')
    status, stdout, stderr = ssh.run("-np", "1", "-H", "far:1", "--start-timeout", "60", "echo", "here")
    assert (status, stdout) == (0, b"[0]<stdout>:here\n"), stderr


def test_a_dead_agent_is_noticed_although_its_ssh_goes_on(ssh: Ssh) -> None:
    """As where what the user's login has started in the background keeps the session open."""
    ssh.does(f'eval "($command)"; exec <&- >&-; exec {sys.executable} -c "import time; time.sleep(600)"')
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = ssh.start("-np", "1", "-H", "far:1", *program)
    deadline = time.monotonic() + within(20)
    while not (agents := ssh.agents()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(agents[0], signal.SIGKILL)
    result = ssh.finish(process, 20)
    assert result.returncode == 1 and "its agent has ended, and ssh has not" in result.output
