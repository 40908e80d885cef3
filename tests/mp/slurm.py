"""Slurm of one node, or of several on this machine, started for a test and ended after it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from load import within

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")

_CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1,sched_interval=2
{nodes}
PartitionName=test Nodes=ALL Default=YES State=UP
"""


def missing() -> str:
    """Why Slurm cannot run here; empty: it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed here: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "the daemons of Slurm start ranks of any user, as root only"


@contextmanager
def cluster(folder: Path, names: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Runs the daemons; gives the variables that lead srun to them. ``names``: of the nodes, which are all on
    this machine; without them there is one, of its name.
    """
    host = os.uname().nodename.partition(".")[0]
    nodes = names or [host]
    with _held_ports(1 + len(nodes)) as ports, _daemons(folder, host, nodes, ports) as variables:
        yield variables


@contextmanager
def _daemons(folder: Path, host: str, nodes: Sequence[str], ports: Sequence[int]) -> Iterator[dict[str, str]]:
    configuration = folder / "slurm.conf"
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for node, port in zip(nodes, ports[1:], strict=True)
    ]
    text = _CONFIGURATION.format(folder=folder, host=host, ports=ports, nodes="\n".join(lines))
    configuration.write_text(text)
    for name in ("state", *(f"spool.{node}" for node in nodes)):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}={folder}/munge.{end}" for name, end in _MUNGE_FILES.items()]
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in nodes)):
            daemons.append(_start(command, folder, environment))
            if command is munge:
                _wait_for(lambda: (folder / "munge.socket").exists(), folder)
        idle = ["sinfo", "--noheader", "--states=idle", "--Node", "--format=%N"]
        _wait_for(lambda: len(_run(idle, environment).split()) == len(nodes), folder)
        yield {"SLURM_CONF": str(configuration)}
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(within(10))
            except subprocess.TimeoutExpired:
                daemon.kill()


_MUNGE_FILES = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _start(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    number = len(list(folder.glob("*.out")))
    with open(folder / f"{number}.{command[0]}.out", "wb") as output:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _run(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, check=False).stdout.decode()


def _wait_for(is_so, folder: Path) -> None:
    deadline = time.monotonic() + within(20)
    while not is_so():
        told = {path.name: path.read_text(errors="replace")[-2000:] for path in folder.glob("*.out")}
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


@contextmanager
def _held_ports(count: int) -> Iterator[list[int]]:
    """Where daemons may listen. The system gives a port that somebody is bound to, without listening, to no
    connection of others meanwhile.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]
