"""Has mpirun or jsrun start the ranks, shows their output as ever, and passes signals and the end on."""

import os
import re
import secrets
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from horovod.bootstrap.text import escaped

from .. import placing
from ..hosts import Host, allocate
from ..job import Job, OtherLauncher
from ..launchers import is_this_host, setup
from ..launchers.setup import Stage
from ..nodes.guardian import Guardian
from ..nodes.rank_process import threads
from . import jsrun, launchers
from .node import LauncherNode
from .order import LauncherError, Order, Start, exported_names, launcher_environment
from .relay import Relay, Testimony

_NAMES = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")
_VERSION_SECONDS = 20.0
_MARKER = "HOROVOD_JOB_ID"
_INTERFACES = "HOROVOD_NETWORK_INTERFACES"


@dataclass(frozen=True)
class _Way:
    """How this job is started, by whom, and how its output is marked."""

    name: str
    tag: "re.Pattern[bytes]"
    start: Start
    passes_stop_on: bool = False


def launch(job: Job, launcher: OtherLauncher) -> int:
    """Runs a job whose ranks an MPI launcher starts, and returns its status.

    That has no way to them of its own, as horovod.run needs one: ``job.call`` hears that.
    """
    if job.call is not None:
        job.call.outcome.refusal = f"--{launcher.name}: it can start a program, and no function; use --gloo"
        return setup.USAGE_STATUS
    return setup.launch(job, lambda runnable, stage: _supervise(runnable, launcher, stage))


def _supervise(job: Job, launcher: OtherLauncher, stage: Stage) -> int:
    loop, sinks, stack = stage.loop, stage.sinks, stage.stack
    marker = secrets.token_hex(8)
    environment = {**launcher_environment(os.environ, job.variables), _MARKER: marker}
    way = _way(launcher, _job(job, launcher, environment))
    guardian = Guardian(
        f"{_MARKER}={marker}", loop.children, lambda text: sinks[1].say(f"warning: {escaped(text)}")
    )
    stack.callback(guardian.dismiss)
    stack.callback(loop.children.kill_strays)
    what = escaped(shlex.join(way.start.words)) if job.output.is_verbose else f"{job.size} ranks"
    setup.tell(job, stage, lambda: f"{way.name}: {what}")
    testimony = Testimony()
    hosts = _hosts_of_ranks(job, launcher, way.name)
    stage.journal.start(job.work.command, hosts)
    supervisor = setup.supervisor(job, stage, hosts, testimony)
    relay = Relay(supervisor, sinks, way.tag, way.name, job.size, testimony)
    node = LauncherNode(loop.selector, loop.children, guardian, relay, way.passes_stop_on)
    relay.drain = node.abandon
    stack.callback(node.close)
    whole = {**environment, **way.start.environment}
    node.start_one(0, way.start.words, whole, reads_input=job.work.stdin_rank is not None)
    return supervisor.run([node])


def _way(other: OtherLauncher, job: Order) -> _Way:
    if other.name == placing.JSRUN:
        path = shutil.which("jsrun")
        if path is None:
            raise LauncherError("--jsrun: there is no jsrun on PATH: load the module of LSF, or use --gloo")
        return _Way("jsrun", jsrun.NO_TAG, jsrun.start(path, job))
    launcher = _find()
    return _Way(str(launcher), launcher.tag, launchers.start(launcher, job), launcher.passes_stop_on)


def _find() -> launchers.Launcher:
    """The first MPI launcher on PATH."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise LauncherError(
            "--mpi: there is no mpirun on PATH: install Open MPI or MPICH (or load their module), or leave "
            "--mpi out, as horovodrun needs no MPI"
        )
    try:
        told = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LauncherError(f"{path} --version does not work: {error}") from None
    return launchers.recognise(path, (told.stdout + told.stderr).decode(errors="replace"))


def _job(job: Job, launcher: OtherLauncher, environment: dict[str, str]) -> Order:
    """The job for the launcher; completes ``environment`` by what ranks get from horovodrun."""
    added = job.variables
    hosts = None if launcher.knows_hosts else job.hosts
    is_here = hosts is not None and all(is_this_host(host.name) for host in hosts)
    given = {"PYTHONUNBUFFERED": "1"}
    if launcher.name == placing.JSRUN:  # it passes on the whole environment by itself
        hosts, is_here = launcher.allocated, True
    elif hosts is not None:
        local_size = max(min(host.slots, job.size) for host in hosts)
        given["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(threads(local_size))
    if hosts is not None and not is_here:
        given["MASTER_ADDR"] = environment.get("MASTER_ADDR") or _name_of(hosts[0])
    environment.update(given)
    names = exported_names(environment, added)
    return Order(
        job.work.command,
        job.size,
        hosts,
        exported=[name for name in names if not is_here or name in added],
        ssh_port=job.reach.ssh_port,
        ssh_identity_file=job.reach.ssh_identity_file,
        interfaces=added.get(_INTERFACES),
        stdin_rank=job.work.stdin_rank,
        binding=_words("--binding-args", launcher.binding),
        extra=_extra(launcher),
        is_root=os.geteuid() == 0,
    )


def _name_of(host: Host) -> str:
    """The name of the first host, where rank 0 runs, as other hosts know it."""
    return os.uname().nodename if is_this_host(host.name) else host.name


def _extra(launcher: OtherLauncher) -> list[str]:
    if launcher.name == placing.JSRUN:
        return [] if launcher.arguments is None else ["--smpiargs", launcher.arguments]
    return _words("--mpi-args", launcher.arguments) or []


def _words(option: str, text: str | None) -> list[str] | None:
    """What a shell would make of the value of an option."""
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise LauncherError(f"{option} {text!r}: {error}") from None


def _hosts_of_ranks(job: Job, launcher: OtherLauncher, name: str) -> list[str]:
    """Where the ranks are, for the report, as far as it is known."""
    if launcher.knows_hosts:
        return [f"started by {name}"] * job.size
    return [place.host for place in allocate(job.hosts, job.size)]
