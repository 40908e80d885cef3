"""horovodrun with an ssh that is slow, silent or stuck: a program in its place, which needs no sshd."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import Launcher


class Ssh(Launcher):
    """Starts jobs whose "ssh" is a script, in which $command is what is to run on the other host."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._program = folder / "ssh"
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"

    def does(self, script: str) -> None:
        self._program.write_text(f'#!/bin/bash\ncommand="${{@: -1}}"\n{script}\n')
        self._program.chmod(0o755)


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
