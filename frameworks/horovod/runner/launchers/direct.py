"""Starts the ranks of a job on its hosts itself, has them supervised, and leaves nothing behind."""

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.paths import working_directory
from horovod.bootstrap.start_settings import STORE_VARIABLE, forget_launchers
from horovod.bootstrap.store.server import StoreServer

from .. import limits
from ..command_line import options
from ..file_writer import FileWriter
from ..hosts import Placement, allocate, by_host
from ..nodes import reach
from ..nodes.local import LocalNode
from ..nodes.loop import Loop
from ..nodes.node import Node, Work
from ..nodes.remote import RemoteNode
from ..nodes.replies import Greeting
from ..outline import outline
from ..output import Display
from ..rank_output import open_files, outputs_of
from ..sink import Sink
from ..supervisor import Supervisor
from . import is_this_host, setup
from .job_hosts import JOB_VARIABLE, JobHosts

RESTART_VARIABLE = "HOROVOD_RESTART"


def launch(arguments: argparse.Namespace) -> int:
    """Runs ``arguments.command`` as ``arguments.num_proc`` ranks and returns the status of the job."""
    return setup.launch(arguments, _supervise)


def _supervise(
    arguments: argparse.Namespace,
    files: FileWriter,
    loop: Loop,
    sinks: Sequence[Sink],
    stack: contextlib.ExitStack,
) -> int:
    """The job, and once more as often as --max-restarts says where its ranks have failed."""
    begin = time.monotonic()
    for restart in itertools.count(1):
        with contextlib.ExitStack() as own:
            supervisor, status = _supervise_once(arguments, files, loop, sinks, own)
        if restart > (arguments.max_restarts or 0) or not supervisor.has_failed:
            break
        supervisor.say(f"all ranks are started again ({restart} of at most {arguments.max_restarts} times)")
        arguments.env = {**(arguments.env or {}), RESTART_VARIABLE: str(restart)}
        if arguments.timeout is not None:  # is that of all of it
            now = time.monotonic()
            arguments.timeout, begin = max(0.0, arguments.timeout - (now - begin)), now
        if arguments.output_filename:
            folder = os.path.join(arguments.output_filename, f"restart.{restart}")
            files.take(open_files(folder, arguments.num_proc))
    return status


def _supervise_once(
    arguments: argparse.Namespace,
    files: FileWriter,
    loop: Loop,
    sinks: Sequence[Sink],
    stack: contextlib.ExitStack,
) -> tuple[Supervisor, int]:
    job = _Job(arguments, loop, sinks, stack)
    job.reach_hosts()
    store = job.serve()
    job.tell()
    display = Display(arguments.prefix_output_with_timestamp, arguments.ranks, arguments.stdin_rank)
    outputs = outputs_of(arguments.num_proc, sinks, display, files.of_ranks, arguments.journal)
    hosts = [place.host for place in job.placements]
    on_failure = None if arguments.call is None else arguments.call.on_failure
    arguments.journal.start(arguments.command, hosts)
    supervisor = Supervisor(
        loop,
        sinks,
        outputs,
        hosts,
        store,
        arguments.verbose,
        on_failure,
        options.ending(arguments),
        arguments.journal,
        reads_terminal=arguments.stdin_rank is not None,
    )
    status = job.hosts.status = supervisor.run(job.start(supervisor))
    return supervisor, status


class _Job:
    """The parts of a job, made in the order of its methods. ``stack`` gets what is to be closed."""

    def __init__(
        self, arguments: argparse.Namespace, loop: Loop, sinks: Sequence[Sink], stack: contextlib.ExitStack
    ) -> None:
        self.placements: list[Placement] = allocate(arguments.host_list, arguments.num_proc)
        self.hosts = JobHosts(arguments, loop, sinks[1], stack, {})
        self._arguments = arguments
        self._loop = loop
        self._sinks = sinks
        self._stack = stack
        self._remotes: dict[str, RemoteNode] = {}
        self._folder = ""  # where the ranks run on other hosts

    def reach_hosts(self) -> None:
        """Brings up an agent on each other host, on all at the same time."""
        arguments = self._arguments
        reader = None if arguments.stdin_rank is None else self.placements[arguments.stdin_rank]
        if reader is not None and not is_this_host(reader.host):
            where = f"--stdin-rank {reader.rank}: that rank runs on {reader.host}"
            raise reach.ReachError(f"{where}; only a rank of this host can read your terminal", 2)
        joined = [] if self.hosts.welcome is None else self.hosts.welcome.wait()
        self.placements = allocate(arguments.host_list, arguments.num_proc)
        for way in joined:
            self._remotes[way.host] = self.hosts.remote(way.host, way)
            self._remotes[way.host].dial(None)
        named = [host for host in by_host(self.placements) if host not in self._remotes]
        self._remotes |= {host: self.hosts.remote(host) for host in named if not is_this_host(host)}
        self._folder = working_directory() if self._remotes else ""
        self.hosts.reach(list(self._remotes.values()), named)

    def serve(self) -> StoreServer:
        """Opens the store, where all hosts reach it."""
        remotes = list(self._remotes.values()) or None
        store = self.hosts.store(self.hosts.secret, self._arguments.num_proc, remotes)
        self._stack.callback(store.close)
        if self._arguments.call is not None:
            self._arguments.call.attach(store)
        store.watch_start(self.hosts.start_seconds, self._loop.wake)
        store.start()
        self.hosts.variables |= {STORE_VARIABLE: store.address, **self._master(store.address)}
        return store

    def tell(self) -> None:
        """Says what is started, and warns of what will be slow."""
        if self._arguments.verbose or self._sinks[1].is_terminal:
            text = outline(self.placements, {**os.environ, **self.hosts.variables})
            self._sinks[1].put(f"horovodrun: {text}\n".encode())
        if crowding := limits.crowding(sum(is_this_host(place.host) for place in self.placements)):
            self.hosts.warn(crowding)

    def start(self, supervisor: Supervisor) -> list[Node]:
        """Starts the ranks on all hosts."""
        nodes: list[Node] = []
        for host, places in by_host(self.placements).items():
            own = setup.shares(self._arguments)
            size, variables = self._arguments.num_proc, self.hosts.variables
            work = Work(self._arguments.command, variables, places, size, **own)
            nodes.append(
                self._start_here(host, work, supervisor)
                if host not in self._remotes
                else self._start_there(self._remotes[host], work, supervisor)
            )
        return nodes

    def _start_here(self, host: str, work: Work, supervisor: Supervisor) -> LocalNode:
        inherited = dict(os.environ)
        forget_launchers(inherited)
        node = self.hosts.local(host, supervisor)
        environment = self.hosts.inheritance(inherited)
        node.start(replace(work, environment=environment, stdin_rank=self._arguments.stdin_rank))
        return node

    def _start_there(self, node: RemoteNode, work: Work, supervisor: Supervisor) -> RemoteNode:
        number = {JOB_VARIABLE: self.hosts.number_at(node.host)}
        inherited = dict(os.environ)
        forget_launchers(inherited)
        own = replace(work, environment={**work.environment, **number})
        node.start(own, self.hosts.secret, self._folder, inherited, supervisor)
        return node

    def _master(self, store_address: str) -> dict[str, str]:
        """Where rank 0 can be reached, for programs that make connections of their own. What the user has set
        stays; a job that makes no such connections runs without a port.
        """
        found = {}
        first = self._remotes.get(self.placements[0].host)
        greeting = first.greeting if first is not None else None
        if self._remotes:
            own = endpoints.split(store_address.split(",")[0])
            found["MASTER_ADDR"] = (greeting.address if greeting else None) or (own[0] if own else "")
        if "MASTER_PORT" not in os.environ:
            found |= self._master_port(greeting)
        return {name: value for name, value in found.items() if name not in os.environ}

    def _master_port(self, there: Greeting | None) -> dict[str, str]:
        """One that is free on the host of rank 0, whose greeting is ``there``; None: it is this host."""
        try:
            port = endpoints.free_port(self.hosts.network.ports) if there is None else there.port
        except OSError:
            port = None
        if port is not None:
            return {"MASTER_PORT": str(port)}
        ports, host = self.hosts.network.ports, "" if there is None else f" on {self.placements[0].host}"
        taken = endpoints.port_range() if ports is None else f"{ports[0]} to {ports[-1]}"
        self.hosts.warn(f"MASTER_PORT is not set: all ports of {taken} are taken{host}")
        return {}
