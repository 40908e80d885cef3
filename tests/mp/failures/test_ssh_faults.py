"""horovodrun with an ssh that is slow, silent or stuck: a program in its place, which needs no sshd."""

import json
import os
import shlex
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
    """Starts jobs whose "ssh" is a script, in which $command is what is to run on the other host. Of its
    configuration (ssh -G) it tells nothing.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._program = folder / "ssh"
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"

    def does(self, script: str) -> None:
        self._program.write_text(f'#!/bin/bash\n[ "$1" = -G ] && exit\ncommand="${{@: -1}}"\n{script}\n')
        self._program.chmod(0o755)

    def agents(self) -> list[int]:
        return [process.pid for process in self.those(_has_ranks)]


def _has_ranks(process: psutil.Process) -> bool:
    return "".join(process.cmdline()).endswith("agent.main()") and bool(process.children())


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


def test_a_login_that_prints_and_reads_is_survived(ssh: Ssh) -> None:
    """As a ~/.bashrc that greets, asks something, and takes a line for the answer."""
    ssh.does('echo "Welcome!"; printf "Go on? [Y/n] "; read answer; read again; eval "$command"')
    status, stdout, stderr = ssh.run("-np", "1", "-H", "far:1", "echo", "here")
    assert (status, stdout) == (0, b"[0]<stdout>:here\n"), stderr


def test_a_login_that_waits_for_input_is_named(ssh: Ssh) -> None:
    ssh.does("echo 'Authenticated to far ([10.0.0.2]:22) using \"publickey\".' >&2; cat >/dev/null")
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "--start-timeout", "2", "true")
    assert status == 1 and b"far: no agent came up within 2 s (--start-timeout); ssh has logged in" in stderr
    assert b"do scripts of the login (~/.bashrc) wait?" in stderr


def test_a_login_that_ends_itself_is_named(ssh: Ssh) -> None:
    ssh.does("exit 0")
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "true")
    assert status == 1 and b"far: its login has ended before an agent has started" in stderr


def test_another_protocol_is_named(ssh: Ssh) -> None:
    ssh.does("printf '\\nhorovod agent 99 0.0.9\\n'; exec sleep 600")
    begin = time.monotonic()
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "true")
    assert status == 1 and time.monotonic() - begin < within(10)
    assert b"far: it has horovod 0.0.9 and this host has" in stderr and b"Traceback" not in stderr


_PATCHED = "import sys; del sys.path[0]; from horovod.runner.nodes import agent, channel; {}; agent.main()"


def _agent(change: str) -> str:
    """A script that starts an agent which differs in something."""
    return f"exec {shlex.join([sys.executable, '-c', _PATCHED.format(change)])}"


def test_what_is_no_message_is_named_with_its_host(ssh: Ssh) -> None:
    ssh.does(_agent("agent._hello = lambda *_: [1]"))
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "true")
    assert status == 1 and b"error: far: what its agent sent as HELLO cannot be read" in stderr
    assert b"Traceback" not in stderr


def test_noise_among_the_messages_ends_the_job_with_the_hosts_name(ssh: Ssh) -> None:
    ssh.does(_agent("agent.Agent.started = lambda self, rank, pid: agent.os.write(1, b'x' * 99)"))
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "sleep", "600")
    assert status == 1 and b"host far of rank 0: what its agent sent is no message" in stderr
    assert b"Traceback" not in stderr


@pytest.mark.parametrize("hosts", ["localhost:1,far:2", "near:1,far:2"])
def test_a_launcher_that_was_stopped_for_long_says_so(ssh: Ssh, hosts: str) -> None:
    """Its agents end their ranks meanwhile, and it ends soon after it goes on."""
    two = 'host="${@: -2:1}"; export SSH_CONNECTION="192.0.2.1 1 192.0.2.${#host} 22"; '  # are not one
    ssh.does(two + _agent("from horovod.runner.nodes import carrier; carrier.PATIENCE_SECONDS = 3.0"))
    process = ssh.start("-np", "3", "-H", hosts, sys.executable, "-c", "import time; time.sleep(600)")
    remote = hosts.count(",") + ("near" in hosts)
    deadline = time.monotonic() + within(30)
    while len(ssh.agents()) < remote:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGSTOP)
    while ssh.agents():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGCONT)
    result = ssh.finish(process, 20)
    assert result.returncode == 1
    reason = "its agent ended with status 1 (nothing was heard of horovodrun for 3 s: was it stopped?)"
    assert f": {reason}; the job's status is 1" in result.output
    assert "[1]<stderr>:horovodrun: nothing was heard of horovodrun for 3 s" in result.output


def test_a_connection_that_sshd_drops_is_tried_again(ssh: Ssh, tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    drop = "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255"
    ssh.does(f'echo >>{tried}; [ $(wc -l <{tried}) -lt 3 ] && {{ {drop}; }}; eval "$command"')
    status, stdout, stderr = ssh.run("-np", "1", "-H", "far:1", "echo", "here")
    assert (status, stdout) == (0, b"[0]<stdout>:here\n"), stderr


def test_an_sshd_that_drops_every_connection_is_named(ssh: Ssh) -> None:
    ssh.does("echo 'Connection closed by 10.0.0.2 port 22' >&2; exit 255")
    status, _, stderr = ssh.run("-np", "1", "-H", "far:1", "true")
    assert status == 1 and b"far: its sshd closes connections before the login" in stderr


def test_ranks_of_a_refused_host_end_once(ssh: Ssh) -> None:
    """Those that had started before the refusal are ended, which is no second end of theirs."""
    fails = (
        "start = agent.LocalNode.start_one; agent.LocalNode.start_one = lambda self, rank, *rest: "
        "start(self, rank, *rest) if rank == 1 else agent.os.open('/nowhere', 0)"
    )
    ssh.does(_agent(fails))
    status, stdout, _ = ssh.run("-np", "3", "-H", "localhost:1,far:2", "--json", "sleep", "600")
    events = [json.loads(line) for line in stdout.splitlines()]
    ended = [event["rank"] for event in events if event["event"] == "exit"]
    assert status == 1 and sorted(ended) == [0, 1, 2], events
    assert "/nowhere" in stdout.decode()


def test_an_agent_that_dies_before_it_has_work_is_named(ssh: Ssh) -> None:
    """While another host is still being reached."""
    ssh.does(
        'if [[ "$*" = *" quick "* ]]; then\n'
        '  exec 3<&0; (eval "$command") <&3 & sleep 3; kill -9 $!; exit 255\n'
        "fi\n"
        'sleep 6; eval "$command"'
    )
    status, _, stderr = ssh.run("-np", "2", "-H", "quick:1,slow:1", "true")
    assert status == 1 and b"horovodrun: error: quick: the agent of horovodrun there was killed" in stderr
