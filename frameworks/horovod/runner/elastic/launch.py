"""Puts an elastic job together and runs it."""

import argparse
import collections
import contextlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from horovod.bootstrap import secret
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.paths import working_directory
from horovod.bootstrap.sources import TORCHRUN_MARKS
from horovod.bootstrap.start_settings import ADDRESS_VARIABLE, START_TIMEOUT_VARIABLE
from horovod.bootstrap.store.server import StoreServer
from horovod.elastic import asking
from horovod.elastic.driver.decisions import Limits
from horovod.elastic.driver.driver import Driver
from horovod.elastic.driver.reliability import COOLDOWN, Reliability

from ..command_line import exports, options
from ..file_writer import FileWriter
from ..launchers import is_this_host, setup
from ..launchers.direct import JOB_VARIABLE
from ..launchers.welcome import Welcome
from ..nodes import reach
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.loop import Loop
from ..nodes.node import Node, Work
from ..nodes.notice import Notice
from ..nodes.remote import RemoteNode
from ..nodes.route import Route
from ..nodes.way import Way
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

_START_SECONDS = 30.0
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
        self._number = secrets.token_hex(8)
        self._status = 1
        self._welcome: Welcome | None = None
        self._hosts_that_dial: HostsThatDial | None = None
        self._secret = self._new_secret()
        self._offered = secret.offer(self._secret)
        stack.callback(self._offered.close)
        self._variables = {
            **options.environment(arguments),
            JOB_VARIABLE: self._number,
            "HOROVOD_ELASTIC": "1",
        }
        self._environment = {**os.environ, **self._variables}
        self._network = interfaces.from_environment(self._environment)
        self._preemption = asking.chosen_signal(self._environment)
        if self._preemption is not None:
            loop.catch(self._preemption)
        self._notice = self._environment.get(options.VARIABLES["preemption_file"]) or None
        self._hosts: list[str] = []  # by worker
        self._logins: collections.Counter[str] = collections.Counter()  # by host
        self._nodes: list[Node] = []
        self._outputs: dict[tuple[int, str], RankOutput] = {}
        self._slots = {host.name: host.slots for host in arguments.host_list}
        self._guardian = Guardian(f"{JOB_VARIABLE}={self._number}")
        stack.callback(self._guardian.dismiss)
        stack.callback(loop.children.kill_strays)
        loop.children.expect(self._guardian.pid, is_tool=True)
        self._discovery = self._new_discovery()
        self._has_told_hosts = False
        stack.callback(self._close_remotes)
        if self._welcome is not None:
            stack.callback(lambda welcome: welcome.part(self._status), self._welcome)
        self._remotes = self._reach_hosts()
        seconds = options.start_timeout(self._environment)
        prepare = [] if arguments.call is None else [arguments.call.attach]
        start = _start_seconds(self._environment)
        self._roster = Roster(self._secret, self._new_store, loop.wake, start, *prepare)
        stack.callback(self._roster.close)
        self._variables[ADDRESS_VARIABLE] = self._roster.address
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
        self._status = supervisor.run(self._nodes, policy)
        if arguments.call is not None:
            arguments.call.ranks = policy.culprit() or policy.ranks()
        return self._status

    def _new_secret(self) -> bytes:
        """A random one, or one that hosts which dial can make, too."""
        arguments = self._arguments
        if arguments.rendezvous is None:
            return secrets.token_bytes(secret.SECRET_BYTES)
        welcome = self._welcome = Welcome(arguments, self._loop, self._number, self._warn)
        named = {host.name: host.slots for host in arguments.host_list}
        self._hosts_that_dial = HostsThatDial(welcome.joining, named, arguments.slots_per_host)
        return welcome.secret

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
        discovery = Discovery(self._loop, self._guardian, script, slots, self._warn)
        self._stack.callback(discovery.close)
        return discovery

    def _reach_hosts(self) -> list[RemoteNode]:
        """Brings up an agent on each other host that the user has named: one that cannot be used is known
        before anything is started. Hosts that a script names later are reached beside the job.
        """
        arguments = self._arguments
        remotes = [self._new_remote(host) for host in self._slots if not is_this_host(host)]
        self._stack.callback(reach.part, self._loop, remotes)
        seconds = options.start_timeout(self._environment)
        reach.greet(self._loop, remotes, seconds, setup.fan_out(arguments, self._environment))
        reach.check_machines(remotes, next(filter(is_this_host, self._slots), None))
        return remotes

    @property
    def _is_here(self) -> bool:
        """Whether the job is on this host and stays there."""
        return self._discovery is None and all(map(is_this_host, self._slots))

    def _new_store(self, key: bytes, size: int) -> StoreServer:
        if self._is_here:
            return StoreServer(key, size, say=self._warn)
        addresses = reach.own_addresses(self._known_remotes(), self._network)
        return StoreServer(key, size, "tcp", self._warn, addresses, ports=self._network.ports)

    def _known_remotes(self) -> list[RemoteNode]:
        """Where a script says the hosts, more may come, by any network: then none are told."""
        if self._discovery is not None:
            return []
        now = [node for node in self._nodes if isinstance(node, RemoteNode)]
        return [*now, *(node for node in self._remotes if node not in now)]

    def _new_node(self, host: str) -> LocalNode | RemoteNode:
        if is_this_host(host) and not self._has_dialled(host):
            node = LocalNode(host, self._loop.selector, self._loop.children, self._guardian, self._supervisor)
            self._stack.callback(node.close)
            inherited = _without_identity(os.environ)
            secret.remove(inherited)
            defaults = {"MASTER_ADDR": endpoints.LOOPBACK}
            own = {**defaults, **inherited, **self._variables, **self._offered.variables}
            node.start(self._work({**own, "PYTHONUNBUFFERED": "1"}))
            return node
        reached = (node for node in self._remotes if node.host == host and not node.is_lost)
        return next(reached, None) or self._new_remote(host)

    def _has_dialled(self, host: str) -> bool:
        return self._hosts_that_dial is not None and self._hosts_that_dial.way(host) is not None

    def _close_remotes(self) -> None:
        for node in self._nodes:
            if isinstance(node, RemoteNode):
                node.close()

    def _new_remote(self, host: str) -> RemoteNode:
        self._logins[host] += 1
        marker = f"{JOB_VARIABLE}={self._number_at(host)}"
        way: Way | None = None if self._hosts_that_dial is None else self._hosts_that_dial.way(host)
        way = way or Route(setup.target(self._arguments, host), self._loop, self._guardian)
        return RemoteNode(way, marker, self._network.ports)

    def _begin(self, node: RemoteNode) -> None:
        environment = {**self._variables, JOB_VARIABLE: self._number_at(node.host), "PYTHONUNBUFFERED": "1"}
        node.on_notice = lambda is_given: self._policy.noticed(node.host, is_given)
        inherited = _without_identity(os.environ)
        node.start(self._work(environment), self._secret, working_directory(), inherited, self._supervisor)

    def _work(self, environment: Mapping[str, str]) -> Work:
        command, notice = self._arguments.command, self._notice
        own = setup.shares(self._arguments)
        return Work(command, environment, (), 0, orphan_seconds=_ORPHAN_SECONDS, notice=notice, **own)

    def _number_at(self, host: str) -> str:
        """Of the latest login there: the agent of an earlier one ends its own workers only."""
        return f"{self._number}.{host}.{self._logins[host]}"

    def _warn(self, text: str) -> None:
        self._sinks[1].put(f"horovodrun: warning: {text}\n".encode())


def _start_seconds(environment: Mapping[str, str]) -> float:
    """What the ranks have for their start; of a value that is no number, they say so."""
    try:
        return float(environment.get(START_TIMEOUT_VARIABLE) or _START_SECONDS)
    except ValueError:
        return float("inf")


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
