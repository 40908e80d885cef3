"""How ssh is started for an agent, and what its failures mean; without a host."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from horovod.runner.nodes import ssh
from horovod.version import __version__

NODE = ssh.Target("n", 2222)


@pytest.fixture
def words_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """How ssh is started, where the user's configuration has these lines."""
    for name in (ssh.CONFIG_VARIABLE, "PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def start(target: ssh.Target, *answers: str, is_relayed: bool = False) -> list[str]:
        answer = "".join(f"  echo {line}\n" for line in answers)
        told = f"#!/bin/sh\nif [ $1 = -G ]; then\n  :\n{answer}exit\nfi\nprintf '%s\\0' \"$@\"\n"
        (tmp_path / "ssh").write_text(told)
        (tmp_path / "ssh").chmod(0o755)
        command = ssh.command(target, is_relayed)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]

    return start


def test_the_command_asks_nobody_and_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, words_of: Callable[..., list[str]]
) -> None:
    words = words_of(ssh.target("fe80::1%eth0", 2222, "/keys/my key"))
    assert words[0] == "-T" and "-oBatchMode=yes" in words
    assert "-oRemoteCommand=none" in words  # in place of what people have started for them
    assert "-oControlMaster=no" in words  # nothing that outlives the job, and others use, is part of it
    assert words[words.index("-p") + 1] == "2222" and words[words.index("-i") + 1] == "/keys/my key"
    assert words[-3:-1] == ["--", "fe80::1%eth0"]  # a name is an argument of its own, and no option
    assert "fe80" not in words[-1] and words[-1].startswith(f"exec {sys.executable} ")
    monkeypatch.setenv(ssh.CONFIG_VARIABLE, "/etc/cluster")
    words = words_of(ssh.target("node", None, None))
    assert words[words.index("-F") + 1] == "/etc/cluster" and "-p" not in words and "-i" not in words


@pytest.mark.parametrize(
    ("answers", "ours"),
    [
        (["host n", "connecttimeout none", "serveraliveinterval 0", "stricthostkeychecking ask"], "CSK"),
        (["connecttimeout 60", "serveraliveinterval 0", "stricthostkeychecking true", "end"], "S"),
        (["connecttimeout none", "serveraliveinterval 30", "stricthostkeychecking false", "end"], "C"),
        (["xconnecttimeout none", "serveraliveinterval 05", "stricthostkeychecking accept-new"], ""),
        ([], "CSK"),  # an ssh that has no -G
    ],
)
def test_the_users_word_counts(words_of: Callable[..., list[str]], answers: list[str], ours: str) -> None:
    options = {
        "C": "-oConnectTimeout=4",
        "S": "-oServerAliveInterval=3",
        "K": "-oStrictHostKeyChecking=accept-new",
    }
    words = words_of(ssh.target("n", None, None), *answers)
    assert [letter for letter, word in options.items() if word in words] == list(ours)


def test_ssh_gives_a_host_up_no_sooner_than_the_launcher(words_of: Callable[..., list[str]]) -> None:
    words = words_of(replace(ssh.target("n", None, None), patience=31.0), "serveraliveinterval 0")
    assert "-oServerAliveInterval=11" in words  # it takes three


def test_a_relay_takes_only_keys_that_it_knows(words_of: Callable[..., list[str]]) -> None:
    """Also where the launcher would take new ones."""
    target = ssh.target("n", 2222, "key")
    ask = "stricthostkeychecking ask"
    assert "-oStrictHostKeyChecking=accept-new" in words_of(target, ask)
    words = words_of(target, ask, "connecttimeout none", is_relayed=True)
    assert not any("StrictHostKeyChecking" in word for word in words) and "-oConnectTimeout=4" in words
    assert words[words.index("-i") + 1] == os.path.abspath("key")  # the folder there is another one


def test_an_agent_finds_the_modules_of_the_launcher(
    monkeypatch: pytest.MonkeyPatch, words_of: Callable[..., list[str]]
) -> None:
    """Whatever the names of folders are made of; what is relative or empty would be of another folder."""
    monkeypatch.setenv("PYTHONPATH", ":/srv/it's $HOME:lib:")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/srv/cuda")
    line = words_of(ssh.target("n", None, None))[-1]
    paths = f"PYTHONPATH=/srv/it's $HOME:{os.path.abspath('lib')}"
    assert shlex.split(line)[:4] == ["exec", "env", paths, "LD_LIBRARY_PATH=/srv/cuda"]
    shell = ssh.Target("n", shell=("rsh", "{host}"))
    assert "env" not in ssh.command(shell)  # nobody knows who reads that line
    monkeypatch.setenv("PYTHONPATH", "/srv/lib")
    assert ssh.command(shell)[2:5] == ["env", "PYTHONPATH=/srv/lib", "LD_LIBRARY_PATH=/srv/cuda"]


def test_without_ssh_there_is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError) as caught:
        ssh.command(ssh.target("n", None, None))
    assert caught.value.filename == "ssh"


@pytest.mark.parametrize(
    ("errors", "meaning"),
    [
        ("ssh: connect to host n port 22: Connection refused", "nothing listens at port 22:"),
        ("ssh: connect to host n port 22: Connection timed out", "does not answer at port 22 "),
        ("ssh: connect to host n port 22: No route to host", "does not answer at port 22 "),
        ("ssh: Could not resolve hostname n: Name or service not known", "no host of that name"),
        ("u@n: Permission denied (publickey).", "accepts none of your keys"),
        (
            "Warning: Identity file /x not accessible: No such file or directory.\n"
            "u@n: Permission denied (publickey).",
            "no such file as -i names",
        ),
        (
            "Warning: Identity file /x not accessible: No such file or directory.\n"
            "ssh: connect to host n port 22: Connection refused",
            "nothing listens",
        ),
        ('Load key "/x": bad permissions\nu@n: Permission denied (publickey).', "chmod 600"),
        ("Can't open user config file /x: No such file or directory", "your configuration of ssh"),
        ("/x: line 1: Bad configuration option: nosuch", "your configuration of ssh"),
        ("Host key verification failed.", "ssh-keygen -R n"),
        ("No ED25519 host key is known for n and\nHost key verification failed.", "accepts no new one"),
        ("kex_exchange_identification: Connection closed by remote host", "(MaxStartups in its sshd_config)"),
        (
            'Authenticated to n ([::1]:22) using "publickey".\nsh: /x: Permission denied',
            "status 9 (sh: /x: Per",
        ),
        (
            "ModuleNotFoundError: No module named 'horovod.runner.nodes'",
            f"another version: install {__version__}",
        ),
        ("ModuleNotFoundError: No module named 'horovod'", f"not installed for {sys.executable}"),
        ("sh: 1: exec: /usr/python: not found", f"{sys.executable} is not there"),
        ("\x1b[2J something else", "ssh ended with status 9 (\\x1b[2J something else)"),
        ("", "ssh ended with status 9"),
    ],
)
def test_what_ssh_says_becomes_a_remedy(errors: str, meaning: str) -> None:
    text = ssh.explain(NODE, 9, errors)
    assert meaning in text and text.isprintable()


def test_the_port_is_the_one_that_ssh_has_used() -> None:
    """The configuration may name another one than 22."""
    timeout = "Connection timed out during banner exchange\r\n"
    node = ssh.Target("n")
    assert "at port 2299 (" in ssh.explain(node, 255, f"{timeout}Connection to ::1 port 2299 timed out\r\n")
    assert "at its port for ssh (" in ssh.explain(node, 255, timeout)
    assert "at port 2222 (" in ssh.explain(NODE, 255, timeout)


def test_that_a_host_was_new_is_no_reason() -> None:
    notice = "Warning: Permanently added '[n]:2222' (ED25519) to the list of known hosts.\r\n"
    assert "was killed" in ssh.farewell(NODE, 255, notice)
    assert ssh.explain(NODE, 9, notice) == "ssh ended with status 9"


def test_what_ended_the_connection_is_not_said_of_the_agent() -> None:
    closed = "Connection to n closed by remote host.\r\n"
    text = "the agent of horovodrun there was killed, or the connection of ssh broke"
    assert ssh.farewell(NODE, 255, closed) == f"{text} (Connection to n closed by remote host.)"
    assert ssh.farewell(NODE, -9, "") == "the ssh here that leads to it was killed by signal 9"
    assert ssh.farewell(NODE, 1, "MemoryError\n") == "its agent ended with status 1 (MemoryError)"


WAITS_FOR_ALL = """#!/bin/sh
[ $1 = -G ] || {{ echo "ssh: Could not resolve hostname x: Name or service not known" >&2; exit 255; }}
touch {folder}/asked.$$
for turn in $(seq 600); do
    [ $(ls {folder} | grep -c asked) -lt {hosts} ] || exit
    sleep 0.1
done
touch {folder}/alone
"""


@pytest.mark.timeout(120)
def test_the_configuration_is_asked_for_all_hosts_at_the_same_time(tmp_path: Path) -> None:
    """Each ssh -G waits here until those for the other hosts run, too."""
    hosts, names = 8, ",".join(f"n{number}:1" for number in range(8))
    (tmp_path / "ssh").write_text(WAITS_FOR_ALL.format(folder=tmp_path, hosts=hosts))
    (tmp_path / "ssh").chmod(0o755)
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", str(hosts), "-H", names]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*words, "--start-timeout", "100", "true"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1 and "there is no host of that name" in done.stderr, done.stderr
    assert len(list(tmp_path.glob("asked.*"))) == hosts and not (tmp_path / "alone").exists()
