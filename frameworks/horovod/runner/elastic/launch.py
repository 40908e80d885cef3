"""Puts an elastic job together and runs it."""

import argparse
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.paths import working_directory
from horovod.bootstrap.sources import TORCHRUN_MARKS
from horovod.bootstrap.start_settings import ADDRESS_VARIABLE
from horovod.bootstrap.store.server import StoreServer
from horovod.elastic import asking
from horovod.elastic.driver.decisions import Limits
from horovod.elastic.driver.driver import Driver
from horovod.elastic.driver.reliability import COOLDOWN, Reliability

from ..command_line import exports, options
from ..file_writer import FileWriter
from ..launchers import is_this_host, setup
from ..launchers.job_hosts import JOB_VARIABLE, JobHosts
from ..nodes.joined import Joined
from ..nodes.local import LocalNode
from ..nodes.loop import Loop
from ..nodes.node import Node, Work
from ..nodes.notice import Notice
from ..nodes.remote import RemoteNode
from ..output import Display
from ..rank_output import RankOutput
from ..sink import Sink
from ..supervisor import Supervisor
from .crew import Crew
from .discovery import Discovery, HostDiscovery
from .hosts_that_dial import HostsThatDial
from .policy import ElasticPolicy
from .roster import Roster
from .worker_output import WorkerOutputs

if TYPE_CHECKING:
    from ..call.call import Call

_ORPHAN_SECONDS = 10.0  # for the step that the ranks are in, and for what they save


def launch(arguments: argparse.Namespace, call: "Call | None" = None) -> int:
    """Runs ``arguments.command`` as an elastic job and returns its status. A function, of ``call``, has a
    result on each worker that does its work to the end.
    """
    arguments.call = call
    return setup.launch(arguments, _supervise)


def _supervise(
    arguments: argparse.Namespace,
    files: FileWriter,
    loop: Loop,
    sinks: Sequence[Sink],
    stack: contextlib.ExitStack,
) -> int:
    job = _Job(arguments, files, loop, sinks, stack)
    arguments.journal.start(arguments.command, [])
    return job.run()


class _Job:
    """The parts of an elastic job. ``stack`` gets what is to be closed."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        files: FileWriter,
        loop: Loop,
        sinks: Sequence[Sink],
        stack: contextlib.ExitStack,
    ) -> None:
        self._arguments = arguments
        self._loop = loop
        self._sinks = sinks
        self._stack = stack
        self._cluster = cluster = JobHosts(arguments, loop, sinks[1], stack, {"HOROVOD_ELASTIC": "1"})
        self._hosts_that_dial = self._new_hosts_that_dial()
        self._environment = cluster.environment
        self._preemption = asking.chosen_signal(self._environment)
        if self._preemption is not None:
            loop.catch(self._preemption)
        self._notice = self._environment.get(options.VARIABLES["preemption_file"]) or None
        self._hosts: list[str] = []  # by worker
        self._nodes: list[Node] = []
        self._outputs: dict[tuple[int, str], RankOutput] = {}
        self._slots = {host.name: host.slots for host in arguments.host_list}
        self._discovery = self._new_discovery()
        self._has_told_hosts = False
        stack.callback(self._part)
        self._remotes = self._reach_hosts()
        seconds = options.start_timeout(self._environment)
        prepare = [] if arguments.call is None else [arguments.call.attach]
        self._roster = Roster(cluster.secret, self._new_store, loop.wake, cluster.start_seconds, *prepare)
        stack.callback(self._roster.close)
        cluster.variables[ADDRESS_VARIABLE] = self._roster.address
        self._crew = Crew(
            self._nodes,
            self._hosts,
            self._outputs,
            sinks,
            self._new_node,
            self._outputs_maker(files),
            self._begin,
            lambda host: self._slots.get(host, 1),
            seconds,
            loop.wake,
        )

    def _outputs_maker(self, files: FileWriter) -> WorkerOutputs:
        arguments = self._arguments
        display = Display(arguments.prefix_output_with_timestamp, arguments.ranks)
        outputs = WorkerOutputs(display, arguments.journal, arguments.output_filename, files)
        self._stack.callback(outputs.close)
        return outputs

    def run(self) -> int:
        """Until the job is over."""
        arguments = self._arguments
        supervisor = self._supervisor = Supervisor(
            self._loop,
            self._sinks,
            self._outputs,
            self._hosts,
            self._roster,
            arguments.verbose,
            ending=options.ending(arguments, self._preemption),
            journal=arguments.journal,
            on_report=None if arguments.call is None else arguments.call.take_report,
        )
        cooldown = arguments.blacklist_cooldown_range or COOLDOWN
        driver = Driver(_limits(arguments, self._environment), time.monotonic(), Reliability(tuple(cooldown)))
        policy = self._policy = ElasticPolicy(
            driver,
            self._roster,
            self._crew,
            self._discover,
            lambda: float("inf") if self._discovery is None else self._discovery.next_time(),
            supervisor.say,
            supervisor.conclude,
            supervisor.find_stopped,
            arguments.journal,
            Notice(self._notice, next(filter(is_this_host, self._slots), os.uname().nodename)),
            supervisor.leave,
            options.grace(arguments),
            arguments.chaos,
            self._preemption,
        )
        status = self._cluster.status = supervisor.run(self._nodes, policy)
        if arguments.call is not None:
            arguments.call.ranks = policy.culprit() or policy.ranks()
        return status

    def _new_hosts_that_dial(self) -> HostsThatDial | None:
        welcome, arguments = self._cluster.welcome, self._arguments
        if welcome is None:
            return None
        named = {host.name: host.slots for host in arguments.host_list}
        return HostsThatDial(welcome.joining, named, arguments.slots_per_host)

    def _discover(self, now: float) -> Mapping[str, int] | None:
        if self._discovery is None:
            first, self._has_told_hosts = not self._has_told_hosts, True
            return self._slots if first else None
        found = self._discovery.tend(now)
        if found is not None:
            self._slots = dict(found)
        return found

    def _new_discovery(self) -> HostDiscovery | None:
        arguments = self._arguments
        if self._hosts_that_dial is not None:
            return self._hosts_that_dial
        if arguments.host_discovery_script is None:
            return None
        script, slots = arguments.host_discovery_script, arguments.slots_per_host
        discovery = Discovery(self._loop, self._cluster.guardian, script, slots, self._cluster.warn)
        self._stack.callback(discovery.close)
        return discovery

    def _reach_hosts(self) -> list[RemoteNode]:
        """Brings up an agent on each other host that the user has named: one that cannot be used is known
        before anything is started. Hosts that a script names later are reached beside the job.
        """
        remotes = [self._new_remote(host) for host in self._slots if not is_this_host(host)]
        self._cluster.reach(remotes, list(self._slots))
        return remotes

    @property
    def _is_here(self) -> bool:
        """Whether the job is on this host and stays there."""
        return self._discovery is None and all(map(is_this_host, self._slots))

    def _new_store(self, key: bytes, size: int) -> StoreServer:
        return self._cluster.store(key, size, None if self._is_here else self._known_remotes())

    def _known_remotes(self) -> list[RemoteNode]:
        """Where a script says the hosts, more may come, by any network: then none are told."""
        if self._discovery is not None:
            return []
        now = [node for node in self._nodes if isinstance(node, RemoteNode)]
        return [*now, *(node for node in self._remotes if node not in now)]

    def _new_node(self, host: str) -> LocalNode | RemoteNode:
        if is_this_host(host) and self._way(host) is None:
            node = self._cluster.local(host, self._supervisor)
            inherited = {"MASTER_ADDR": endpoints.LOOPBACK, **_without_identity(os.environ)}
            node.start(self._work({**self._cluster.inheritance(inherited), "PYTHONUNBUFFERED": "1"}))
            return node
        reached = (node for node in self._remotes if node.host == host and not node.is_lost)
        return next(reached, None) or self._new_remote(host)

    def _way(self, host: str) -> Joined | None:
        return None if self._hosts_that_dial is None else self._hosts_that_dial.way(host)

    def _new_remote(self, host: str) -> RemoteNode:
        return self._cluster.remote(host, self._way(host))

    def _part(self) -> None:
        if self._cluster.welcome is not None:
            self._cluster.welcome.part(self._cluster.status)
        for node in self._nodes:
            if isinstance(node, RemoteNode):
                node.close()

    def _begin(self, node: RemoteNode) -> None:
        number = {JOB_VARIABLE: self._cluster.number_at(node.host)}
        work = self._work({**self._cluster.variables, **number, "PYTHONUNBUFFERED": "1"})
        node.on_notice = lambda is_given: self._policy.noticed(node.host, is_given)
        inherited = _without_identity(os.environ)
        node.start(work, self._cluster.secret, working_directory(), inherited, self._supervisor)

    def _work(self, environment: Mapping[str, str]) -> Work:
        command, notice = self._arguments.command, self._notice
        own = setup.shares(self._arguments)
        return Work(command, environment, (), 0, orphan_seconds=_ORPHAN_SECONDS, notice=notice, **own)


def _without_identity(environ: Mapping[str, str]) -> dict[str, str]:
    """What workers inherit: not who this process is in a job that this one is started in."""
    return {n: value for n, value in environ.items() if n not in {*exports.IDENTITY, *TORCHRUN_MARKS}}


def _limits(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Limits:
    return Limits(
        ranks=arguments.num_proc,
        fewest=arguments.min_np,
        most=arguments.max_np,
        spares=arguments.spares or 0,
        resets=arguments.reset_limit,
        patience=options.elastic_timeout(environment),
        is_durable=bool(environment.get(options.VARIABLES["checkpoint_dir"])),
        grace=options.grace(arguments),
    )
