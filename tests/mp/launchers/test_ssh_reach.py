"""How horovodrun reaches other hosts by a real sshd, and what it says where it cannot."""

import math
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sshd
from launch import Launcher
from load import within
from sshd import Hosts

pytestmark = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())


@pytest.mark.parametrize(
    "case", ["changed key", "wrong key", "refused port", "nobody listens", "no such name"]
)
def test_a_host_that_cannot_be_reached_is_named_at_once(ssh: sshd.Ssh, tmp_path: Path, case: str) -> None:
    job = Launcher()
    client = tmp_path / "client"
    known = tmp_path / "known_hosts"
    known.write_text("")
    client.write_text(
        (ssh.folder / "client").read_text().replace(str(ssh.folder / "known_hosts"), str(known))
    )
    port, key, host = str(ssh.port), ssh.folder / "user", "127.0.0.2"
    if case == "changed key":
        other = (ssh.folder / "user.pub").read_text().split()
        known.write_text(f"[127.0.0.2]:{port} {other[0]} {other[1]}\n")
        expected = "127.0.0.2: its key is not the one that known_hosts has"
    elif case == "wrong key":
        key = tmp_path / "wrong"
        sshd.make_key(key)
        expected = "127.0.0.2: it accepts none of your keys"
    elif case == "refused port":
        port, expected = "1", "127.0.0.2: nothing listens at port 1:"
    elif case == "nobody listens":
        host, expected = "127.0.0.4", f"127.0.0.4: nothing listens at port {port}:"
    else:
        host, expected = "no-such-host.invalid", "no-such-host.invalid: there is no host of that name"
    begin = time.monotonic()
    status, stdout, stderr = job.run(
        *("-p", port, "-i", str(key), "-np", "4", "-H", f"localhost:2,{host}:2", "true"),
        HOROVOD_SSH_CONFIG=str(client),
    )
    assert time.monotonic() - begin < within(5)
    assert (status, stdout) == (1, b"") and f"horovodrun: error: {expected}".encode() in stderr
    job.wait_until_gone(1.0)


def test_the_key_of_a_new_host_is_accepted_and_kept(hosts: Hosts, ssh: sshd.Ssh) -> None:
    known = ssh.folder / "known_hosts"
    known.unlink(missing_ok=True)
    status, _, stderr = hosts.run(*hosts.command("-np", "1", "-H", "127.0.0.3:1", "true"))
    assert status == 0, stderr
    assert f"[127.0.0.3]:{ssh.port}" in known.read_text()


def test_a_configuration_that_accepts_no_new_key_is_honoured(
    hosts: Hosts, ssh: sshd.Ssh, tmp_path: Path
) -> None:
    """What is said on the command line of ssh would override it."""
    client = tmp_path / "client"
    client.write_text(
        f"Host *\n  StrictHostKeyChecking yes\n  UserKnownHostsFile {tmp_path}/known\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    words = hosts.command("-np", "1", "-H", "127.0.0.3:1", "true")
    status, _, stderr = hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))
    assert status == 1 and b"127.0.0.3: its key is not known here, and your configuration of ssh" in stderr
    assert not (tmp_path / "known").exists()
    client.write_text(client.read_text().replace("yes", "no"))
    assert hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))[0] == 0


def test_a_configuration_for_people_does_not_get_in_the_way(
    hosts: Hosts, ssh: sshd.Ssh, tmp_path: Path
) -> None:
    """One that starts another program than the command line says, and one that has ssh say nothing."""
    client = tmp_path / "client"
    client.write_text((ssh.folder / "client").read_text() + "  RemoteCommand tmux\n  LogLevel QUIET\n")
    words = hosts.command("-np", "1", "-H", "127.0.0.3:1", "true")
    status, _, stderr = hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))
    assert status == 0, stderr


@pytest.mark.skipif(
    not pwd.getpwuid(os.getuid()).pw_shell.endswith("bash"), reason="your login shell is not bash"
)
def test_a_login_script_that_prints_and_reads_is_survived(tmp_path: Path) -> None:
    """As ~/.bashrc, which bash reads when sshd has started it."""
    script = tmp_path / "script"
    script.write_text(
        'if [ -n "$BASH_ENV" ]; then unset BASH_ENV; echo Welcome; echo "Which cluster?"; read cluster; fi\n'
    )
    program = [sys.executable, "-c", "print('here')"]
    with sshd.serving(tmp_path, more=f"SetEnv BASH_ENV={script}\n") as server:
        hosts = Hosts(server)
        status, stdout, stderr = hosts.run(*hosts.command("-np", "1", "-H", "127.0.0.2:1", *program))
        assert (status, stdout) == (0, b"[0]<stdout>:here\n"), stderr
        script.write_text('if [ -n "$BASH_ENV" ]; then cat >/dev/null; fi\n')
        patience = str(math.ceil(within(3.0)))  # in which ssh logs in
        words = hosts.command("-np", "1", "-H", "127.0.0.2:1", "--start-timeout", patience, *program)
        status, _, stderr = hosts.run(*words)
        assert status == 1 and b"ssh has logged in, but no agent has started" in stderr
        hosts.wait_until_gone(3.0)


def test_two_names_of_one_machine_are_named(hosts: Hosts, ssh: sshd.Ssh, tmp_path: Path) -> None:
    client = tmp_path / "client"
    names = "Host node1 node1.cluster\n  HostName 127.0.0.2\nHost head.cluster\n  HostName 127.0.0.1\n"
    client.write_text(names + (ssh.folder / "client").read_text())
    words = hosts.command("-np", "2", "-H", "node1:1,node1.cluster:1", "true")
    status, _, stderr = hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))
    assert status == 2 and b"error: node1 and node1.cluster are one host: give it one name" in stderr
    words = hosts.command("-np", "2", "-H", "localhost:1,head.cluster:1", "true")
    status, _, stderr = hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))
    assert status == 2 and b"error: localhost and head.cluster are one host: give it one name" in stderr
    words = hosts.command("-np", "2", "-H", "head.cluster:2", "true")
    assert hosts.run(*words, HOROVOD_SSH_CONFIG=str(client))[0] == 0


def test_the_master_port_of_another_host_is_one_of_the_range(hosts: Hosts) -> None:
    script = "import os; print(os.environ.get('MASTER_PORT'))"
    words = hosts.command("-np", "1", "-H", "127.0.0.2:1", sys.executable, "-c", script)
    status, stdout, stderr = hosts.run(*words, HOROVOD_PORT_RANGE="27110-27129")
    assert status == 0, stderr
    assert 27110 <= int(stdout.decode().removeprefix("[0]<stdout>:")) <= 27129


def test_sixteen_hosts_that_let_few_in_at_a_time(tmp_path: Path) -> None:
    """More than sshd takes are dropped, and come again."""
    names = [f"127.0.0.{number}" for number in range(1, 17)]
    with sshd.serving(tmp_path, names, "MaxStartups 4\n") as server:
        hosts = Hosts(server)
        program = [sys.executable, "-c", "import os; print(os.environ['HOROVOD_HOSTNAME'])"]
        listed = ",".join(f"{name}:1" for name in names)
        process = hosts.start(*hosts.command("-np", "16", "-H", listed, "--start-timeout", "120", *program))
        result = hosts.finish(process, 120)
        assert result.returncode == 0, result.output
        assert {line.partition(":")[2] for line in result.stdout.decode().splitlines()} == set(names)
        hosts.wait_until_gone(3.0)


def test_a_version_of_its_own_is_named(hosts: Hosts, tmp_path: Path) -> None:
    """As after an update of one host only."""
    other = tmp_path / "python"
    other.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c \'import horovod.version as v; v.__version__ = "0.1"\n'
        "from horovod.runner.nodes import agent; agent.main()'\n"
    )
    other.chmod(0o755)
    code = "import sys; sys.executable = sys.argv.pop(1); import horovod.runner.launch as it; "
    code += "it.run_commandline()"
    process = subprocess.run(
        [sys.executable, "-c", code, str(other), *hosts.command("-np", "1", "-H", "127.0.0.2:1", "true")],
        env=hosts.environment,
        capture_output=True,
        timeout=within(30),
    )
    assert process.returncode == 1
    assert b"127.0.0.2: it has horovod 0.1 and this host has" in process.stderr
