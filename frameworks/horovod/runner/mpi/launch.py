"""Has mpirun or jsrun start the ranks, shows their output as ever, and passes signals and the end on."""

import argparse
import contextlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from horovod.bootstrap.text import escaped

from .. import placing
from ..command_line import options
from ..file_writer import FileWriter
from ..hosts import Host, allocate
from ..launchers import is_this_host, setup
from ..nodes.guardian import Guardian
from ..nodes.loop import Loop
from ..nodes.rank_process import threads
from ..output import Display
from ..rank_output import outputs_of
from ..sink import Sink
from ..supervisor import Supervisor
from . import jsrun, launchers
from .job import Job, LauncherError, Start, exported_names, launcher_environment
from .node import LauncherNode
from .relay import Relay, Testimony

if TYPE_CHECKING:
    from ..call.call import Call

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


def launch(arguments: argparse.Namespace, call: "Call | None" = None) -> int:
    """Runs ``arguments.command`` as ranks of an MPI launcher and returns the status of the job.

    It has no way to them of its own, as horovod.run needs one: ``call`` hears that.
    """
    if call is not None:
        call.outcome.refusal = (
            f"--{arguments.controller}: it can start a program, and no function; use --gloo"
        )
        return setup.USAGE_STATUS
    return setup.launch(arguments, _supervise)


def _supervise(
    arguments: argparse.Namespace,
    files: FileWriter,
    loop: Loop,
    sinks: Sequence[Sink],
    stack: contextlib.ExitStack,
) -> int:
    added = options.environment(arguments)
    marker = secrets.token_hex(8)
    environment = {**launcher_environment(os.environ, added), _MARKER: marker}
    way = _way(arguments, _job(arguments, environment, added))
    guardian = Guardian(f"{_MARKER}={marker}", loop.children, lambda text: _warn(sinks[1], text))
    stack.callback(guardian.dismiss)
    stack.callback(loop.children.kill_strays)
    if arguments.verbose or sinks[1].is_terminal:
        line = escaped(shlex.join(way.start.words)) if arguments.verbose else f"{arguments.num_proc} ranks"
        sinks[1].put(f"horovodrun: {way.name}: {line}\n".encode())
    display = Display(arguments.prefix_output_with_timestamp, arguments.ranks, arguments.stdin_rank)
    outputs = outputs_of(arguments.num_proc, sinks, display, files.of_ranks, arguments.journal)
    testimony = Testimony()
    hosts = _hosts_of_ranks(arguments, way.name)
    arguments.journal.start(arguments.command, hosts)
    ending = options.ending(arguments)
    supervisor = Supervisor(
        loop,
        sinks,
        outputs,
        hosts,
        testimony,
        ending=ending,
        journal=arguments.journal,
        reads_terminal=arguments.stdin_rank is not None,
    )
    relay = Relay(supervisor, sinks, way.tag, way.name, arguments.num_proc, testimony)
    node = LauncherNode(loop.selector, loop.children, guardian, relay, way.passes_stop_on)
    relay.drain = node.abandon
    stack.callback(node.close)
    whole = {**environment, **way.start.environment}
    node.start_one(0, way.start.words, whole, arguments.stdin_rank is not None)
    return supervisor.run([node])


def _warn(sink: Sink, text: str) -> None:
    sink.put(f"horovodrun: warning: {escaped(text)}\n".encode())


def _way(arguments: argparse.Namespace, job: Job) -> _Way:
    if arguments.controller == placing.JSRUN:
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


def _job(arguments: argparse.Namespace, environment: dict[str, str], added: Mapping[str, str]) -> Job:
    """The job for the launcher; completes ``environment`` by what ranks get from horovodrun."""
    size = arguments.num_proc
    hosts = None if placing.leaves_hosts_to_launcher(arguments, os.environ) else arguments.host_list
    is_here = hosts is not None and all(is_this_host(host.name) for host in hosts)
    given = {"PYTHONUNBUFFERED": "1"}
    if arguments.controller == placing.JSRUN:
        hosts, is_here = (
            arguments.allocation and arguments.allocation.hosts,
            True,
        )  # it passes on the whole environment by itself
    elif hosts is not None:
        local_size = max(min(host.slots, size) for host in hosts)
        given["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(threads(local_size))
    if hosts is not None and not is_here:
        given["MASTER_ADDR"] = environment.get("MASTER_ADDR") or _name_of(hosts[0])
    environment.update(given)
    names = exported_names(environment, added)
    return Job(
        arguments.command,
        size,
        hosts,
        exported=[name for name in names if not is_here or name in added],
        ssh_port=arguments.ssh_port,
        ssh_identity_file=arguments.ssh_identity_file,
        interfaces=added.get(_INTERFACES),
        stdin_rank=arguments.stdin_rank,
        binding=_words("--binding-args", arguments.binding_args),
        extra=_extra(arguments),
        is_root=os.geteuid() == 0,
    )


def _name_of(host: Host) -> str:
    """The name of the first host, where rank 0 runs, as other hosts know it."""
    return os.uname().nodename if is_this_host(host.name) else host.name


def _extra(arguments: argparse.Namespace) -> list[str]:
    if arguments.controller == placing.JSRUN:
        return [] if arguments.mpi_args is None else ["--smpiargs", arguments.mpi_args]
    return _words("--mpi-args", arguments.mpi_args) or []


def _words(option: str, text: str | None) -> list[str] | None:
    """What a shell would make of the value of an option."""
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise LauncherError(f"{option} {text!r}: {error}") from None


def _hosts_of_ranks(arguments: argparse.Namespace, name: str) -> list[str]:
    """Where the ranks are, for the report, as far as it is known."""
    if placing.leaves_hosts_to_launcher(arguments, os.environ):
        return [f"started by {name}"] * arguments.num_proc
    return [place.host for place in allocate(arguments.host_list, arguments.num_proc)]
