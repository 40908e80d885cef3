"""Starts the ranks of a job on its hosts itself, has them supervised, and leaves nothing behind."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.start_settings import RESTART_VARIABLE, STORE_VARIABLE
from horovod.bootstrap.store.server import StoreServer

from .. import limits
from ..hosts import Host, Placement, allocate, by_host
from ..job import Job
from ..nodes import machine, reach
from ..nodes.node import Node
from ..nodes.remote import RemoteNode
from ..nodes.replies import Greeting
from ..outline import outline
from ..rank_output import open_files
from ..supervisor import Supervisor
from . import is_this_host, setup
from .job_hosts import JobHosts
from .setup import Stage


def launch(job: Job) -> int:
    """Runs a job whose ranks are the same from its start to its end, and returns its status."""
    return setup.launch(job, _supervise)


def _supervise(job: Job, stage: Stage) -> int:
    """The job, and once more as often as --max-restarts says where its ranks have failed."""
    begin = time.monotonic()
    for restart in itertools.count(1):
        with contextlib.ExitStack() as own:
            supervisor, status = _supervise_once(job, replace(stage, stack=own), restart)
        if not supervisor.is_to_restart:
            break
        supervisor.say(f"all ranks are started again ({restart} of at most {job.restarts} times)")
        job = replace(job, variables={**job.variables, RESTART_VARIABLE: str(restart)})
        if job.timeout is not None:  # is that of all of it
            now = time.monotonic()
            job, begin = replace(job, timeout=max(0.0, job.timeout - (now - begin))), now
        if job.output.folder:
            folder = os.path.join(job.output.folder, f"restart.{restart}")
            stage.files.take(open_files(folder, job.size))
    if restart > 1:
        stage.notes.append(f"started {restart} times")
    return status


def _supervise_once(job: Job, stage: Stage, number: int) -> tuple[Supervisor, int]:
    """The start of this number, from 1 on."""
    start = _Start(job, stage)
    start.reach_hosts()
    store = start.serve()
    start.tell()
    hosts = [host for host, places in start.by_node() for _ in places]
    if number == 1:
        stage.journal.start(job.work.command, hosts)
    else:
        stage.journal.restart(number - 1)
    supervisor = setup.supervisor(job, stage, hosts, store, may_restart=number <= job.restarts)
    status = start.hosts.status = supervisor.run(start.start(supervisor))
    return supervisor, status


class _Start:
    """The start of a job, in the order of its methods."""

    def __init__(self, job: Job, stage: Stage) -> None:
        self.placements: list[Placement] = allocate(job.hosts, job.size)
        self.hosts = JobHosts(job, stage, {})
        self._job = job
        self._stage = stage
        self._remotes: dict[str, RemoteNode] = {}
        self._sharing: dict[str, list[Host]] = {}  # by the first of them: agents that are on one machine

    def reach_hosts(self) -> None:
        """Brings up an agent on each other host, on all at the same time."""
        stdin_rank = self._job.work.stdin_rank
        reader = None if stdin_rank is None else self.placements[stdin_rank]
        if reader is not None and not is_this_host(reader.host):
            where = f"--stdin-rank {reader.rank}: that rank runs on {reader.host}"
            raise reach.ReachError(f"{where}; only a rank of this host can read your terminal", 2)
        joined, hosts = self.hosts.wait()
        self.placements = allocate(hosts, self._job.size)
        for way in joined:
            self._remotes[way.host] = self.hosts.remote(way.host, way)
            self._remotes[way.host].dial(None)
        named = [host for host in by_host(self.placements) if host not in self._remotes]
        self._remotes |= {host: self.hosts.remote(host) for host in named if not is_this_host(host)}
        self.hosts.reach(list(self._remotes.values()), named)
        if joined:
            self._bring_together([self._remotes[way.host] for way in joined], hosts)

    def _bring_together(self, joined: Sequence[RemoteNode], hosts: Sequence[Host]) -> None:
        """Counts the ranks of agents that are on one machine as those of one host."""
        machines = {node.host: node.greeting.machine for node in joined if node.greeting is not None}
        self._sharing = {group[0].name: group for group in machine.together(hosts, machines)}
        slots = {name: sum(host.slots for host in group) for name, group in self._sharing.items()}
        self.placements = allocate([Host(name, count) for name, count in slots.items()], self._job.size)

    def serve(self) -> StoreServer:
        """Opens the store, where all hosts reach it."""
        remotes = list(self._remotes.values()) or None
        store = self.hosts.store(self.hosts.secret, self._job.size, remotes)
        self._stage.stack.callback(store.close)
        self.hosts.attach(store)
        store.watch_start(self.hosts.start_seconds, self._stage.loop.wake)
        store.start()
        self.hosts.variables |= {STORE_VARIABLE: store.address, **self._master(store.address)}
        return store

    def tell(self) -> None:
        """Says what is started, and warns of what will be slow."""
        environment = {**os.environ, **self.hosts.variables}
        setup.tell(self._job, self._stage, lambda: outline(self.placements, environment))
        if crowding := limits.crowding(sum(is_this_host(place.host) for place in self.placements)):
            self.hosts.warn(crowding)

    def start(self, supervisor: Supervisor) -> list[Node]:
        """Starts the ranks on all hosts."""
        nodes: list[Node] = []
        for host, places in self.by_node():
            work = replace(self._job.work, placements=places)
            nodes.append(
                self.hosts.start_there(self._remotes[host], work, supervisor)
                if host in self._remotes
                else self.hosts.start_here(host, work, supervisor)
            )
        return nodes

    def by_node(self) -> Iterator[tuple[str, list[Placement]]]:
        """The nodes by their names, and who runs on each, in the order of the ranks."""
        for name, places in by_host(self.placements).items():
            for host in self._sharing.get(name, [Host(name, len(places))]):
                own, places = places[: host.slots], places[host.slots :]
                if own:
                    yield host.name, own

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
