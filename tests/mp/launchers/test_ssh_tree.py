"""horovodrun on seven "hosts" of which it dials two: the agents there dial the others."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import sshd
from launch import PROGRAMS, alone
from load import within
from sshd import Hosts

NAMES = [f"127.0.0.{number}" for number in range(2, 9)]
LISTED = ",".join(f"{name}:1" for name in NAMES)
FAN_OUT = ("--ssh-fan-out", "2")
ALL = ("-np", "7", "-H", LISTED, *FAN_OUT, "--start-timeout", "300")
# Jobs on a few hosts are tried by test_ssh.py.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())]

WAITS = """
import os, pathlib, sys, time
fresh = pathlib.Path(sys.argv[1], "new." + os.environ["RANK"])
fresh.write_text(str(os.getpid()))
fresh.rename(pathlib.Path(sys.argv[1], "rank." + os.environ["RANK"]))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Ssh]:
    with sshd.serving(tmp_path_factory.mktemp("sshd"), NAMES, "MaxStartups 100\n") as server:
        yield server


@pytest.fixture
def hosts(ssh: sshd.Ssh) -> Iterator[Hosts]:
    ssh.know(NAMES)
    hosts = Hosts(ssh)
    yield hosts
    hosts.wait_until_gone(4.0)


class AtWork:
    """A job of seven ranks that wait, one on each host."""

    def __init__(self, hosts: Hosts, folder: Path, *more: str, program: str = WAITS) -> None:
        self._hosts = hosts
        command = [sys.executable, "-c", program, str(folder)]
        self.launcher = hosts.start(*hosts.command(*ALL, *more, *command))
        deadline = time.monotonic() + within(40)
        while len(files := sorted(folder.glob("rank.*"))) < len(NAMES):
            if time.monotonic() > deadline or self.launcher.poll() is not None:
                self.launcher.kill()
                raise AssertionError(hosts.finish(self.launcher, 5).output)
            time.sleep(0.05)
        self.pids = [int(file.read_text()) for file in files]
        self.behind = {rank: self._hosts_behind(rank) for rank in range(len(NAMES))}

    def agent_of(self, rank: int) -> int:
        return psutil.Process(self.pids[rank]).ppid()

    def _hosts_behind(self, rank: int) -> list[str]:
        """Those to which the agent of this rank has an ssh."""
        lines = [child.cmdline() for child in psutil.Process(self.agent_of(rank)).children()]
        return [line[line.index("--") + 1] for line in lines if line[:1] == ["ssh"]]

    @property
    def relay(self) -> int:
        """The rank of a host that others are behind, and which is not behind another one itself."""
        dialled = {host for hosts in self.behind.values() for host in hosts}
        return next(rank for rank, name in enumerate(NAMES) if self.behind[rank] and name not in dialled)

    @property
    def last(self) -> int:
        """The rank of a host behind the relay."""
        return NAMES.index(self.behind[self.relay][0])

    def end(self, seconds: float) -> tuple[int, str]:
        return self._hosts.end(self.launcher, seconds)


@pytest.fixture
def at_work(hosts: Hosts, tmp_path: Path) -> AtWork:
    return AtWork(hosts, tmp_path)


def test_seven_hosts_work_together(hosts: Hosts) -> None:
    process = hosts.start(
        *hosts.command(*ALL, sys.executable, str(PROGRAMS / "launched.py")),
        HOROVOD_LOG_LEVEL="info",
    )
    result = hosts.finish(process, 240)
    assert result.returncode == 0, result.output
    for rank in range(7):
        assert f"[{rank}]<stdout>:places {[rank, 7, 0, 1, rank, 7]} total [21, 28, 35, 42]" in result.output
    ways = re.findall(r"horovodrun: info: reached (directly|by way of \S+): (.*)", result.output)
    assert sorted(host for _, listed in ways for host in listed.split(", ")) == NAMES, ways
    assert all(len(listed.split(", ")) <= 2 for _, listed in ways) and len(ways) >= 4, ways


def test_the_tree_is_as_flat_as_it_can_be(at_work: AtWork) -> None:
    found = sorted(host for behind in at_work.behind.values() for host in behind)
    assert len(found) == len(set(found)) == 5
    assert max(map(len, at_work.behind.values())) <= 2
    at_work.launcher.terminate()
    assert at_work.end(20)[0] == 143


def test_a_killed_relay_is_the_culprit(at_work: AtWork) -> None:
    os.kill(at_work.agent_of(at_work.relay), signal.SIGKILL)
    status, text = at_work.end(20)
    expected = (
        f"host {NAMES[at_work.relay]} of rank {at_work.relay}: the agent of horovodrun there was killed"
    )
    assert status == 1 and expected in text.splitlines()[0] and len(text.splitlines()) <= 12, text


def test_a_host_of_a_relay_that_loses_everything_piece_by_piece(at_work: AtWork) -> None:
    """The ssh that leads on goes first: that the hosts behind it are lost is news, but not the cause."""
    agent = psutil.Process(at_work.agent_of(at_work.relay))
    sessions = [child.pid for child in agent.children() if child.name() == "ssh"]
    for pid in (*sessions, agent.pid, at_work.pids[at_work.relay]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status, text = at_work.end(20)
    assert status == 1 and f"host {NAMES[at_work.relay]} of rank {at_work.relay}:" in text.splitlines()[0], (
        text
    )


def test_a_killed_ssh_of_a_relay_is_told_as_what_it_is(at_work: AtWork) -> None:
    (first, *_) = (
        child for child in psutil.Process(at_work.agent_of(at_work.relay)).children() if child.name() == "ssh"
    )
    host = first.cmdline()[first.cmdline().index("--") + 1]
    first.kill()
    status, text = at_work.end(20)
    expected = f"host {host} of rank {NAMES.index(host)}: the ssh on {NAMES[at_work.relay]} that leads to it"
    assert status == 1 and f"{expected} was killed by signal 9" in text.splitlines()[0], text


def test_a_killed_rank_behind_a_relay_is_the_culprit(at_work: AtWork) -> None:
    rank = at_work.last
    os.kill(at_work.pids[rank], signal.SIGKILL)
    status, text = at_work.end(20)
    killed = f"rank {rank} ({NAMES[rank]}, pid {at_work.pids[rank]}) failed first: killed by SIGKILL"
    assert status == 137 and killed in text.splitlines()[0] and len(text.splitlines()) <= 12, text


def test_a_killed_launcher_leaves_nothing_anywhere(at_work: AtWork) -> None:
    at_work.launcher.kill()
    assert at_work.end(10) == (-signal.SIGKILL, "")


def test_ctrl_c_ends_all_hosts(at_work: AtWork) -> None:
    at_work.launcher.send_signal(signal.SIGINT)
    assert at_work.end(20) == (130, "horovodrun: SIGINT: ending all ranks (a second one: at once)")


def test_a_stopped_relay_is_the_culprit(at_work: AtWork) -> None:
    """Those behind it are not heard either. Their agents end when its ssh does, or after a silence."""
    agent = at_work.agent_of(at_work.relay)
    os.kill(agent, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        result = at_work._hosts.finish(at_work.launcher, 40)
        seconds = time.monotonic() - begin
    finally:
        os.kill(agent, signal.SIGCONT)  # it finds its launcher gone, and ends its ranks
    lines = [line for line in result.output.splitlines() if line.startswith("horovodrun:")]
    expected = f"host {NAMES[at_work.relay]} of rank {at_work.relay}: its agent has not answered for 8 s"
    assert result.returncode == 1 and expected in lines[0] and len(lines) <= 12, result.output
    assert seconds < within(20)  # 8 s, and those who are left have their time to end


def test_a_timeout_shows_the_stacks_behind_a_relay(hosts: Hosts) -> None:
    script = "import time\ndef stuck():\n    time.sleep(600)\nstuck()\n"
    limit = str(round(within(5)))
    process = hosts.start(*hosts.command(*ALL, "--timeout", limit, sys.executable, "-c", script))
    result = hosts.finish(process, 60)
    assert result.returncode == 124
    for rank in range(len(NAMES)):
        assert re.search(rf"^\[{rank}\]<stderr>:.* in stuck$", result.output, re.MULTILINE), result.output


def test_events_of_all_hosts_are_told(hosts: Hosts) -> None:
    status, stdout, _ = hosts.run(*hosts.command(*ALL, "--json", "sh", "-c", "exit $RANK"))
    events = [json.loads(line) for line in stdout.splitlines()]
    started = {event["rank"]: event["host"] for event in events if event["event"] == "rank"}
    assert started == dict(enumerate(NAMES)) and 1 <= status <= 6


def test_output_from_behind_relays_waits_for_its_reader(hosts: Hosts) -> None:
    """Where it is made: a relay keeps little of it, and its own news come through meanwhile."""
    script = (
        "import os, sys, time\n"
        "for n in range(100000 if os.environ['RANK'] in '56' else 0): print(n, 'x' * 190)\n"
        "print(os.environ['RANK'], 'done', file=sys.stderr)\n"
    )
    process = hosts.start(*hosts.command(*ALL, sys.executable, "-c", script))
    deadline = time.monotonic() + within(30)
    while len(agents := hosts.agents()) < len(NAMES):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(within(2.0))  # nobody reads: 20 MB wait on each of two hosts
    assert max(agent.memory_info().rss for agent in agents) < 120 << 20
    result = hosts.finish(process, 120)
    assert result.returncode == 0, result.stderr[-2000:]
    for rank in range(len(NAMES)):
        prefix = f"[{rank}]<stdout>:".encode()
        own = [line[len(prefix) :] for line in result.stdout.splitlines() if line.startswith(prefix)]
        assert own == [b"%d %s" % (n, b"x" * 190) for n in range(100000 if rank > 4 else 0)]
        assert f"[{rank}]<stderr>:{rank} done".encode() in result.stderr


def test_a_relay_that_knows_no_keys_of_hosts_leaves_them_to_the_launcher(hosts: Hosts, ssh: sshd.Ssh) -> None:
    ssh.know([])
    status, _, stderr = hosts.run(*hosts.command(*ALL, "true"), HOROVOD_LOG_LEVEL="info")
    assert status == 0, stderr.decode()
    assert b"could not reach" in stderr and b"; it was dialled directly" in stderr
    assert stderr.count(b"horovodrun: warning") == 1 and b"horovodrun: error" not in stderr
    ssh.know([])
    status, _, stderr = hosts.run(*hosts.command(*ALL, "true"))
    assert (status, stderr) == (0, alone(int(ALL[1])))


def test_a_relay_without_the_users_key_leaves_hosts_to_the_launcher(hosts: Hosts, ssh: sshd.Ssh) -> None:
    """The launcher has it from an ssh-agent, and relays have not."""
    answer = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    variables = dict(re.findall(r"(SSH_\w+)=([^;]+);", answer))
    try:
        subprocess.run(
            ["ssh-add", "-q", str(ssh.folder / "user")], env={**os.environ, **variables}, check=True
        )
        status, _, stderr = hosts.run(
            *("-p", str(ssh.port), *ALL, "true"), HOROVOD_LOG_LEVEL="info", **variables
        )
        assert status == 0, stderr.decode()
        assert b"it accepts none of your keys" in stderr and b"; it was dialled directly" in stderr
    finally:
        os.kill(int(variables["SSH_AGENT_PID"]), signal.SIGTERM)


def test_a_host_that_nobody_reaches_is_named_with_the_true_reason(hosts: Hosts, ssh: sshd.Ssh) -> None:
    listed = f"{LISTED},127.0.0.99:1"
    words = ("-np", "8", "-H", listed, *FAN_OUT, "--start-timeout", "300", "true")
    begin = time.monotonic()
    status, _, stderr = hosts.run(*hosts.command(*words))
    assert status == 1 and time.monotonic() - begin < within(10)
    errors = [line for line in stderr.decode().splitlines() if "error" in line]
    expected = f"horovodrun: error: 127.0.0.99: nothing listens at port {ssh.port}: does sshd run there?"
    assert len(errors) == 1 and errors[0].startswith(expected), stderr.decode()


def test_secrets_are_seen_in_no_command_line(hosts: Hosts, tmp_path: Path) -> None:
    script = WAITS.replace(
        "time.sleep", 'print(open(os.environ["HOROVOD_SECRET_FILE"]).read(), flush=True); time.sleep'
    )
    output = tmp_path / "out"
    job = AtWork(hosts, tmp_path, "--output-filename", str(output), program=script)
    deadline = time.monotonic() + within(10)
    while len(found := {file.read_text() for file in output.glob("rank.*/stdout")} - {""}) != 1:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    (secret,) = found
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes())
    assert len(secret.strip()) == 64 and secret.strip().encode() not in b"\0".join(lines)
    job.launcher.terminate()
    assert job.end(20)[0] == 143
