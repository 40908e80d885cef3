"""Starts jobs by the launchers of others, the real ones: on this host, or on several that it stands for."""

import ctypes.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch import PROGRAMS, Launcher

from horovod.bootstrap.network.endpoints import free_port

PROGRAM = str(PROGRAMS / "launched.py")
AGENT = str(PROGRAMS / "remote_shell.py")
STAND_IN = str(PROGRAMS / "stand_in.py")
HOSTS = ("127.0.0.2", "127.0.0.3")
REAL = ("torchrun", "MPICH's mpirun", "Open MPI")
# As root, as in most containers, Open MPI asks twice.
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
VERSIONS = {"Open MPI": "Open MPI|OpenRTE|PRRTE", "MPICH's mpirun": "HYDRA"}

# Of which the system takes none for an outgoing connection while a launcher starts that is to listen there.
PORTS = range(21000, 31000)


def mpirun_of(launcher: str) -> str:
    """The mpirun of one MPI, under whichever name it is here."""
    for name in ("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"):
        if path := shutil.which(name):
            told = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=30, check=False
            )
            if re.search(VERSIONS[launcher], told.stdout):
                return path
    pytest.skip(f"{launcher} is not installed here")


def command_of(launcher: str, ranks: int) -> list[str]:
    if launcher == "torchrun":
        module = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*module, "--nproc-per-node", str(ranks)]
    oversubscribe = ["--oversubscribe"] if launcher == "Open MPI" else []
    return [mpirun_of(launcher), *oversubscribe, "-np", str(ranks), sys.executable]


def run(launcher: str, *arguments: str, ranks: int, **changes: str) -> tuple[int, str]:
    """Status and output of a job."""
    own = Launcher()
    environment = {**own.environment, **ROOT, "OMP_NUM_THREADS": "1", **changes}
    process = own.popen([*command_of(launcher, ranks), *arguments], env=environment, stderr=subprocess.STDOUT)
    result = own.finish(process, 90)
    own.wait_until_gone(5)
    return result.returncode, result.output


def hosts_command_of(launcher: str, ranks: int, port: int = 0, *options: str) -> list[list[str]]:
    """The commands of one job with ``ranks`` on each of two hosts: for torchrun one on each of them. What is
    not in REAL is stood in for.
    """
    if launcher == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        place = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port)]
        return [[*torchrun, *place, "--node-rank", str(node), *options] for node in range(2)]
    if launcher not in REAL:
        return [[sys.executable, STAND_IN, launcher, str(ranks), sys.executable]]
    hosts = ",".join(f"{host}:{ranks}" for host in HOSTS)
    if launcher == "Open MPI":
        agent = ["--mca", "plm_rsh_agent", AGENT, "--host", hosts]
    else:
        agent = ["-launcher", "ssh", "-launcher-exec", AGENT, "-hosts", hosts]
    return [[mpirun_of(launcher), *agent, *options, "-np", str(2 * ranks), sys.executable]]


def run_on_hosts(
    launcher: str,
    *arguments: str,
    ranks: int = 2,
    port: int = 0,
    options: tuple[str, ...] = (),
    **changes: str,
) -> tuple[int, str]:
    """Status and output of a job with ``ranks`` on each of two hosts; of torchrun's two commands the worse
    status.
    """
    own = Launcher()
    environment = {**own.environment, **ROOT, "OMP_NUM_THREADS": "1", **changes}
    commands = hosts_command_of(launcher, ranks, port or free_port(PORTS), *options)
    jobs = [
        own.popen([*command, *arguments], env=environment, stderr=subprocess.STDOUT) for command in commands
    ]
    results = [own.finish(job, 90) for job in jobs]
    own.wait_until_gone(5)
    return max(abs(result.returncode) for result in results), "".join(result.output for result in results)


def mpich_for_mpi4py(folder: Path) -> dict[str, str]:
    """Variables with which mpi4py takes MPICH, whose library has a name of its own in Debian."""
    library = ctypes.util.find_library("mpich") or ctypes.util.find_library("mpi")
    (folder / "libmpi.so.12").symlink_to(_whereabouts(library or "libmpich.so.12"))
    return {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(folder)}


def _whereabouts(library: str) -> str:
    """The path of a shared library, from the cache of the dynamic linker."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"{re.escape(library)} .*=> (\S+)", cache)
    if found is None:
        pytest.skip(f"the library of MPICH ({library}) is not here")
    return found[1]
