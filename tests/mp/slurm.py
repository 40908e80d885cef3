"""Slurm of one node, started for a test and ended after it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from load import within

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")

_CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES State=UP
"""


def missing() -> str:
    """Why Slurm cannot run here; empty: it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed here: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "the daemons of Slurm start ranks of any user, as root only"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the daemons; gives the variables that lead srun to them."""
    configuration = folder / "slurm.conf"
    host = os.uname().nodename.partition(".")[0]
    configuration.write_text(_CONFIGURATION.format(folder=folder, host=host, ports=_ports(2)))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}={folder}/munge.{end}" for name, end in _MUNGE_FILES.items()]
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemons.append(_start(command, folder, environment))
            if command is munge:
                _wait_for(lambda: (folder / "munge.socket").exists(), folder)
        _wait_for(lambda: "idle" in _run(["sinfo", "--noheader", "--format=%t"], environment), folder)
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
    with open(folder / f"{command[0]}.out", "wb") as output:
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


def _ports(count: int) -> list[int]:
    """That are free now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
