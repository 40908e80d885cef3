"""An sshd of the tests' own at several addresses of this machine, which pass for hosts."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import networks
import psutil
from launch import Launcher
from load import within

SERVER = shutil.which("sshd") or "/usr/sbin/sshd"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
_PORT = 2222  # in a network of its own

_SERVER_CONFIGURATION = """Port {port}
{addresses}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
_CLIENT_CONFIGURATION = """Host *
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


@dataclass(frozen=True)
class Ssh:
    """How the hosts are reached: a port, a private key, and a file that leads ssh to a list of known hosts of
    its own.
    """

    folder: Path
    port: int

    @property
    def options(self) -> list[str]:
        """Of horovodrun."""
        return ["-p", str(self.port), "-i", str(self.folder / "user")]

    @property
    def environment(self) -> dict[str, str]:
        """Of horovodrun."""
        return {"HOROVOD_SSH_CONFIG": str(self.folder / "client")}

    def know(self, hosts: Sequence[str]) -> None:
        """Makes the keys of these hosts known, and no others."""
        kind, key, *_ = (self.folder / "host.pub").read_text().split()
        lines = [f"[{host}]:{self.port} {kind} {key}\n" for host in hosts]
        (self.folder / "known_hosts").write_text("".join(lines))


class Hosts(Launcher):
    """Starts jobs on the hosts of an sshd."""

    def __init__(self, ssh: Ssh) -> None:
        super().__init__()
        self._ssh = ssh
        self.environment |= ssh.environment

    def command(self, *arguments: str) -> list[str]:
        return [*self._ssh.options, *arguments]

    def agents(self) -> list[psutil.Process]:
        """Those that came through this sshd: not what they start, which looks like them until it is a
        program of its own, or is ssh and names them.
        """
        alike = {process.pid: process for process in psutil.process_iter() if self._is_agent(process)}
        parents = {pid: _parent(process) for pid, process in alike.items()}
        return [alike[pid] for pid, parent in parents.items() if parent is not None and parent not in alike]

    def _is_agent(self, process: psutil.Process) -> bool:
        try:
            address = process.environ().get("SSH_CONNECTION", "")
            return address.endswith(f" {self._ssh.port}") and "agent.main()" in " ".join(process.cmdline())
        except psutil.Error:
            return False

    def end(self, launcher: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
        """The job's status and the lines of horovodrun; nothing may be left."""
        result = self.finish(launcher, seconds)
        self.wait_until_gone(4.0)
        own = [line for line in result.output.splitlines() if line.startswith("horovodrun:")]
        return result.returncode, "\n".join(own)

    def wait_until_gone(self, seconds: float) -> None:
        super().wait_until_gone(seconds)
        deadline = time.monotonic() + within(seconds)
        while (left := self.agents()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left


def _parent(process: psutil.Process) -> int | None:
    """None: it has ended."""
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def missing() -> str:
    """Why there can be no sshd; empty: there can."""
    absent = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    absent += [] if os.access(SERVER, os.X_OK) else ["sshd"]
    return f"OpenSSH is not installed here: {', '.join(absent)}" if absent else ""


def make_key(path: Path) -> None:
    """A new key without a password, and its public half beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextmanager
def serving(folder: Path, hosts: Sequence[str] = HOSTS, more: str = "") -> Iterator[Ssh]:
    """Runs sshd while the context is open. Logs in whoever has the key, as the user who runs the tests.
    ``more``: lines for its configuration.
    """
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port = int(probe.getsockname()[1])
    _prepare(folder)
    with _server(folder, "server", hosts, port, more):
        yield Ssh(folder, port)


@contextmanager
def serving_in(folder: Path, places: Mapping[str, networks.Namespace]) -> Iterator[Ssh]:
    """The same in namespaces: one at each address, each in a network of its own."""
    _prepare(folder)
    with ExitStack() as stack:
        for address, place in places.items():
            stack.enter_context(_server(folder, f"server.{address}", [address], _PORT, place=place))
        yield Ssh(folder, _PORT)


def _prepare(folder: Path) -> None:
    for name in ("host", "user"):
        make_key(folder / name)
    (folder / "client").write_text(_CLIENT_CONFIGURATION.format(folder=folder))
    if os.geteuid() == 0:  # where it keeps its unprivileged half
        Path("/run/sshd").mkdir(exist_ok=True)


@contextmanager
def _server(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    port: int,
    more: str = "",
    place: networks.Namespace | None = None,
) -> Iterator[None]:
    addresses = "\n".join(f"ListenAddress {host}" for host in hosts)
    configuration, log = folder / name, folder / f"{name}.log"
    text = _SERVER_CONFIGURATION.format(port=port, addresses=addresses, folder=folder)
    configuration.write_text(text + more)
    command = [SERVER, "-D", "-e", "-f", str(configuration)]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command if place is None else place.command(*command), stderr=stderr, stdin=subprocess.DEVNULL
        )
    try:
        _wait_for(len(hosts), process, log)
        yield
    finally:
        process.kill()
        process.wait()


def _wait_for(count: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + within(10)
    while time.monotonic() < deadline and process.poll() is None:
        if log.read_text().count("Server listening on") == count:
            return
        time.sleep(0.05)
    raise AssertionError(f"sshd does not serve: {log.read_text()}")
