"""Faults of jobs that the launchers of others have started, the real ones: every rank ends in time, survivors
name the culprit, the status is as the launcher gives it, and no process is left.
"""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import slurm
from launch import PROGRAMS, Launcher
from load import within
from other_launchers import PORTS, ROOT, command_of, hosts_command_of

from horovod.bootstrap.network.endpoints import free_port

pytestmark = pytest.mark.slow  # how jobs of other launchers start is tried by test_launchers.py

CULPRIT = 1
LAUNCHERS = ("torchrun", "MPICH's mpirun", "Open MPI", "srun")
ONE_HOST, TWO_HOSTS = 3, 4  # ranks
AT_WORK = str(PROGRAMS / "at_work.py")


@dataclass(frozen=True)
class Fault:
    """``number``: the signal that rank 1 gets, or with ``to_launcher`` the first launcher, once or twice.
    Survivors say ``said``, a pattern, within ``told_in`` seconds; everything is gone ``gone_in``
    seconds after the fault. ``statuses``: of the launchers; 1 unless said.
    """

    number: signal.Signals
    said: str = ""
    told_in: float = 0.0
    gone_in: float = 10.0
    to_launcher: bool = False
    twice: bool = False
    statuses: dict[str, tuple[int, ...]] = field(default_factory=dict)


LEFT = r"has left the job \(its program ended, failed or called shutdown\(\)\)"
FAULTS = {
    # Hydra joins the statuses of all ranks by "or", and gives up with 255 on several hosts.
    "killed": Fault(
        signal.SIGKILL,
        "died(, or the network to its host broke)?: its connection ended without a goodbye",
        1.0,
        statuses={"MPICH's mpirun": (9, 255), "Open MPI": (137,), "srun": (137,)},
    ),
    "raises": Fault(signal.SIGUSR1, LEFT, 2.0),
    "ends well": Fault(signal.SIGUSR2, LEFT, 3.0),
    "is stopped": Fault(
        signal.SIGSTOP, r"has not responded for \S+ s \(process is stopped\)", 10.0, gone_in=20.0
    ),
    # srun asks for it twice; the others are quicker by it. torchrun's own process may abort when the second
    # one comes at an ill moment. A rank that sees another one leave before it is interrupted raises: 1.
    "Ctrl-C": Fault(
        signal.SIGINT,
        to_launcher=True,
        twice=True,
        statuses={"MPICH's mpirun": (1, 2, 3, 9, 11, 255), "srun": (130, 137), "torchrun": (1, -2, -6, 130)},
    ),
    "launcher killed": Fault(
        signal.SIGKILL, gone_in=5.0, to_launcher=True, statuses=dict.fromkeys(LAUNCHERS, (-9,))
    ),
}
# These may end a rank before it knows why.
MAY_SAY_NOTHING = {
    ("torchrun", "raises"),
    ("torchrun", "killed"),
    ("MPICH's mpirun", "killed"),
    ("Open MPI", "raises"),
}


@pytest.fixture(scope="module")
def slurms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], dict[str, str]]]:
    """The variables that lead srun to a Slurm of one node or, if asked, of two."""
    running: dict[bool, dict[str, str]] = {}
    own = os.uname().nodename.partition(".")[0]
    with contextlib.ExitStack() as stack:

        def start(on_two: bool) -> dict[str, str]:
            if missing := slurm.missing():
                pytest.skip(missing)
            if on_two not in running:
                names = [own, f"{own}-second"] if on_two else []
                running[on_two] = stack.enter_context(slurm.cluster(tmp_path_factory.mktemp("slurm"), names))
            return running[on_two]

        yield start


class AtWork:
    """A job in the middle of its work."""

    def __init__(self, commands: list[list[str]], folder: Path, ranks: int, **changes: str) -> None:
        self.launcher = Launcher()
        self.folder = folder
        self.ranks = ranks
        environment = {**self.launcher.environment, **ROOT, "OMP_NUM_THREADS": "1", **changes}
        self.processes = [
            self.launcher.popen([*command, AT_WORK, str(folder)], env=environment, stderr=subprocess.STDOUT)
            for command in commands
        ]
        self.pids = {rank: int(text) for rank, text in self._told("rank", range(ranks), 60).items()}

    def _told(self, name: str, ranks: "range | list[int]", seconds: float) -> dict[int, str]:
        """What these ranks have written under ``name``, within so many seconds."""
        deadline = time.monotonic() + within(seconds)
        files = {rank: self.folder / f"{name}.{rank}" for rank in ranks}
        while not all(file.exists() for file in files.values()):
            if time.monotonic() > deadline or (name == "rank" and any(p.poll() for p in self.processes)):
                raise AssertionError(f"{name} of {sorted(files)} is missing\n{self.finish(0.1)}")
            time.sleep(0.02)
        return {rank: file.read_text() for rank, file in files.items()}

    def survivors_said(self, seconds: float) -> dict[int, str]:
        return self._told("error", [rank for rank in self.pids if rank != CULPRIT], seconds)

    def finish(self, seconds: float) -> list[tuple[int, str]]:
        """Status and output of each command."""
        results = [self.launcher.finish(process, seconds) for process in self.processes]
        return [(result.returncode, result.output) for result in results]


def start(launcher: str, ranks: int, folder: Path, slurms: Callable[[bool], dict[str, str]]) -> AtWork:
    work = folder / "work"
    work.mkdir()
    on_two = ranks == TWO_HOSTS
    if launcher == "srun":
        places = ["--nodes", "2", "--mpi=pmi2"] if on_two else []
        command = ["srun", "--ntasks", str(ranks), "--overcommit", *places, sys.executable]
        return AtWork([command], work, ranks, **slurms(on_two))
    if not on_two:
        return AtWork([command_of(launcher, ranks)], work, ranks)
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))
    given = {"HOROVOD_SECRET_FILE": str(secret), "MASTER_ADDR": "127.0.0.1"}
    options = [word for name in given if launcher == "Open MPI" for word in ("-x", name)]
    return AtWork(hosts_command_of(launcher, 2, free_port(PORTS), *options), work, ranks, **given)


# torchrun loads torch, which takes longer than the rest of a case.
WITH_TORCHRUN = ("killed", "Ctrl-C", "launcher killed")
CASES = [
    pytest.param(
        ranks,
        launcher,
        fault,
        id=f"{ranks}-{launcher}-{fault}",
        marks=[pytest.mark.full]
        if ranks == TWO_HOSTS or (launcher == "torchrun" and fault not in WITH_TORCHRUN)
        else [],
    )
    for ranks in (ONE_HOST, TWO_HOSTS)
    for launcher in LAUNCHERS
    for fault in FAULTS
]


@pytest.mark.parametrize(("ranks", "launcher", "fault"), CASES)
def test_a_job_of_another_launcher_ends(
    ranks: int, launcher: str, fault: str, tmp_path: Path, slurms: Callable[[bool], dict[str, str]]
) -> None:
    what = FAULTS[fault]
    job = start(launcher, ranks, tmp_path, slurms)
    family = [psutil.Process(pid) for pid in job.pids.values()]
    before = shared_memory()
    begin = time.monotonic()
    if what.to_launcher:
        signal_launcher(job, what)
    else:
        os.kill(job.pids[CULPRIT], what.number)
    if what.said and (launcher, fault) not in MAY_SAY_NOTHING:
        host = r" on \S+( \(node 0\))?" if ranks == TWO_HOSTS else ""
        who = rf"rank {CULPRIT}{host} \(pid {job.pids[CULPRIT]}\) {what.said}"
        for text in job.survivors_said(what.told_in).values():
            assert re.search(who, text), text
    ends = job.finish(what.gone_in)
    _, alive = psutil.wait_procs(family, timeout=within(what.gone_in))
    assert alive == [] and time.monotonic() - begin < within(2 * what.gone_in), ends
    assert ends[0][0] in what.statuses.get(launcher, (1,)), ends
    job.launcher.wait_until_gone(5)
    assert left_in_memory(before) == set()


def left_in_memory(before: set[str]) -> set[str]:
    """What is new and no process has: tests that run beside this one have theirs for a while."""
    deadline = time.monotonic() + within(10)
    while left := {name for name in shared_memory() - before if not is_mapped(name)}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


def is_mapped(name: str) -> bool:
    """By any process."""
    for file in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if f"/dev/shm/{name}".encode() in file.read_bytes():
                return True
    return False


def shared_memory() -> set[str]:
    """The names of shared memory; not those of Open MPI and of Python's semaphores: other tests make them."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("vader_segment", "sem.mp-"))}


def signal_launcher(job: AtWork, what: Fault) -> None:
    if what.number == signal.SIGKILL:
        job.processes[0].kill()
        return
    for _ in range(1 + what.twice):
        for process in job.processes:
            process.send_signal(what.number)
        time.sleep(0.3)
