"""Starts the ranks of a job on its hosts itself, has them supervised, and leaves nothing behind."""

import argparse
import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from horovod.bootstrap import secret
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.paths import working_directory
from horovod.bootstrap.start_settings import START_TIMEOUT_VARIABLE, STORE_VARIABLE, forget_launchers
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.text import escaped, is_logged

from .. import limits
from ..command_line import options
from ..file_writer import FileWriter
from ..hosts import Placement, allocate, by_host
from ..nodes import reach
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.loop import Loop
from ..nodes.node import Node, Work
from ..nodes.remote import RemoteNode
from ..nodes.replies import Greeting
from ..nodes.route import Route
from ..outline import outline
from ..output import Display
from ..rank_output import open_files, outputs_of
from ..sink import Sink
from ..supervisor import Supervisor
from . import is_this_host, setup
from .welcome import Welcome

JOB_VARIABLE = "HOROVOD_JOB_ID"
RESTART_VARIABLE = "HOROVOD_RESTART"
_START_SECONDS = 30.0


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
    )
    job.status = supervisor.run(job.start(supervisor))
    return supervisor, job.status


class _Job:
    """The parts of a job, made in the order of its methods. ``stack`` gets what is to be closed."""

    def __init__(
        self, arguments: argparse.Namespace, loop: Loop, sinks: Sequence[Sink], stack: contextlib.ExitStack
    ) -> None:
        self.placements: list[Placement] = allocate(arguments.host_list, arguments.num_proc)
        self._arguments = arguments
        self._loop = loop
        self._sinks = sinks
        self._stack = stack
        number = secrets.token_hex(8)
        self._number = number
        welcome = self._welcome = Welcome(arguments, loop, number, self._warn) if arguments.joining else None
        if welcome is None:
            self._secret = secrets.token_bytes(secret.SECRET_BYTES)
        else:
            self._secret = welcome.secret
            stack.callback(lambda: welcome.part(self.status))
        self.status = 1
        self._variables = {**options.environment(arguments), JOB_VARIABLE: number}
        self._environment = {**os.environ, **self._variables}
        self._network = interfaces.from_environment(self._environment)
        self._remotes: dict[str, RemoteNode] = {}
        self._folder = ""  # where the ranks run on other hosts
        self._guardian = Guardian(f"{JOB_VARIABLE}={number}")
        stack.callback(self._guardian.dismiss)
        stack.callback(loop.children.kill_strays)
        loop.children.expect(self._guardian.pid, is_tool=True)

    def reach_hosts(self) -> None:
        """Brings up an agent on each other host, on all at the same time."""
        arguments = self._arguments
        reader = None if arguments.stdin_rank is None else self.placements[arguments.stdin_rank]
        if reader is not None and not is_this_host(reader.host):
            where = f"--stdin-rank {reader.rank}: that rank runs on {reader.host}"
            raise reach.ReachError(f"{where}; only a rank of this host can read your terminal", 2)
        ports = self._network.ports
        joined = [] if self._welcome is None else self._welcome.wait()
        self.placements = allocate(arguments.host_list, arguments.num_proc)
        for way in joined:
            marker = f"{JOB_VARIABLE}={self._number_at(way.host)}"
            node = self._remotes[way.host] = RemoteNode(way, marker, ports)
            node.dial(None)
        hosts = [host for host in by_host(self.placements) if host not in self._remotes]
        for host in [each for each in hosts if not is_this_host(each)]:
            target, marker = setup.target(arguments, host), f"{JOB_VARIABLE}={self._number_at(host)}"
            self._remotes[host] = RemoteNode(Route(target, self._loop, self._guardian), marker, ports)
        self._folder = working_directory() if self._remotes else ""
        remotes = list(self._remotes.values())
        self._stack.callback(lambda: reach.part(self._loop, remotes, self.status))
        seconds = options.start_timeout(self._environment)
        reach.greet(self._loop, remotes, seconds, setup.fan_out(arguments, self._environment))
        for line in reach.ways(remotes):
            self._inform(line)
        reach.check_machines(remotes, next(filter(is_this_host, hosts), None))

    def serve(self) -> StoreServer:
        """Opens the store, where all hosts reach it."""
        size, addresses = self._arguments.num_proc, [endpoints.LOOPBACK]
        if self._remotes:
            addresses = reach.own_addresses(list(self._remotes.values()), self._network)
            store = StoreServer(self._secret, size, "tcp", self._warn, addresses, ports=self._network.ports)
        else:
            store = StoreServer(self._secret, size, say=self._warn)
        self._stack.callback(store.close)
        if self._arguments.call is not None:
            self._arguments.call.attach(store)
        store.watch_start(self._start_seconds(), self._loop.wake)
        store.start()
        self._variables |= {STORE_VARIABLE: store.address, **self._master(addresses[0])}
        return store

    def _start_seconds(self) -> float:
        """What the ranks have for their start; of a value that is no number, they say so."""
        text = {**os.environ, **self._variables}.get(START_TIMEOUT_VARIABLE) or _START_SECONDS
        try:
            return float(text)
        except ValueError:
            return float("inf")

    def tell(self) -> None:
        """Says what is started, and warns of what will be slow."""
        if self._arguments.verbose or self._sinks[1].is_terminal:
            text = outline(self.placements, {**os.environ, **self._variables})
            self._sinks[1].put(f"horovodrun: {text}\n".encode())
        if crowding := limits.crowding(sum(is_this_host(place.host) for place in self.placements)):
            self._warn(crowding)

    def start(self, supervisor: Supervisor) -> list[Node]:
        """Starts the ranks on all hosts."""
        nodes: list[Node] = []
        for host, places in by_host(self.placements).items():
            own = setup.shares(self._arguments)
            work = Work(self._arguments.command, self._variables, places, self._arguments.num_proc, **own)
            nodes.append(
                self._start_here(host, work, supervisor)
                if host not in self._remotes
                else self._start_there(self._remotes[host], work, supervisor)
            )
        return nodes

    def _start_here(self, host: str, work: Work, supervisor: Supervisor) -> LocalNode:
        offered = secret.offer(self._secret)
        self._stack.callback(offered.close)
        inherited = dict(os.environ)
        secret.remove(inherited)  # of a job that this one is started in
        forget_launchers(inherited)
        environment = {**inherited, **work.environment, **offered.variables}
        node = LocalNode(host, self._loop.selector, self._loop.children, self._guardian, supervisor)
        self._stack.callback(node.close)
        node.start(replace(work, environment=environment, stdin_rank=self._arguments.stdin_rank))
        return node

    def _start_there(self, node: RemoteNode, work: Work, supervisor: Supervisor) -> RemoteNode:
        own = replace(work, environment={**work.environment, JOB_VARIABLE: self._number_at(node.host)})
        inherited = dict(os.environ)
        forget_launchers(inherited)
        node.start(own, self._secret, self._folder, inherited, supervisor)
        return node

    def _number_at(self, host: str) -> str:
        """One of its own, so that on a machine of several agents each ends its own ranks only."""
        return f"{self._number}.{host}"

    def _master(self, own_address: str) -> dict[str, str]:
        """Where rank 0 can be reached, for programs that make connections of their own. What the user has set
        stays; a job that makes no such connections runs without a port.
        """
        found = {}
        first = self._remotes.get(self.placements[0].host)
        greeting = first.greeting if first is not None else None
        if self._remotes:
            found["MASTER_ADDR"] = (greeting.address if greeting else None) or own_address
        if "MASTER_PORT" not in os.environ:
            found |= self._master_port(greeting)
        return {name: value for name, value in found.items() if name not in os.environ}

    def _master_port(self, there: Greeting | None) -> dict[str, str]:
        """One that is free on the host of rank 0, whose greeting is ``there``; None: it is this host."""
        try:
            port = endpoints.free_port(self._network.ports) if there is None else there.port
        except OSError:
            port = None
        if port is not None:
            return {"MASTER_PORT": str(port)}
        ports, host = self._network.ports, "" if there is None else f" on {self.placements[0].host}"
        taken = endpoints.port_range() if ports is None else f"{ports[0]} to {ports[-1]}"
        self._warn(f"MASTER_PORT is not set: all ports of {taken} are taken{host}")
        return {}

    def _inform(self, text: str) -> None:
        if is_logged("info", self._environment):
            self._sinks[1].put(f"horovodrun: info: {escaped(text)}\n".encode())

    def _warn(self, text: str) -> None:
        self._sinks[1].put(f"horovodrun: warning: {text}\n".encode())
