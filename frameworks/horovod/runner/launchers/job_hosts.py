"""The hosts of one job, static or elastic: the ways to them, and what all processes there have in common."""

import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from horovod.bootstrap import secret, variables
from horovod.bootstrap.network import interfaces
from horovod.bootstrap.paths import working_directory
from horovod.bootstrap.sources import TORCHRUN_MARKS
from horovod.bootstrap.start_settings import (
    ADDRESS_VARIABLE,
    IDENTITY,
    RANK_SECONDS,
    START_TIMEOUT_VARIABLE,
    WORKER_VARIABLE,
)
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.text import escaped, is_logged

from .. import timeouts
from ..hosts import Host
from ..job import Job
from ..nodes import reach, ssh
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.node import Events, Work
from ..nodes.remote import RemoteNode
from ..nodes.route import Route
from ..nodes.way import PATIENCE, Way
from . import identity, is_this_host
from .setup import Stage

if TYPE_CHECKING:
    from ..nodes.joined import Joined
    from .welcome import Welcome

_JOB_VARIABLE = "HOROVOD_JOB_ID"
# Who this process is itself, where a rank or torchrun has started it.
_OWN = {*IDENTITY, ADDRESS_VARIABLE, WORKER_VARIABLE, *TORCHRUN_MARKS}


class JobHosts:
    """``status`` is that of the job, for hosts that leave with it.

    ``variables`` are those of all processes of the job, and may grow until the first one starts;
    ``environment`` is the launcher's own with them, as they are at the beginning.
    """

    def __init__(self, job: Job, stage: Stage, variables: Mapping[str, str]) -> None:
        """``variables`` are those of this kind of job. Raises ValueError where the job's cannot be used."""
        self.status = 1
        self._job = job
        self._loop = stage.loop
        self._view = stage.view
        self._complaints = stage.sinks[1]
        self._stack = stage.stack
        self._number = secrets.token_hex(8)
        self._logins: Counter[str] = Counter()  # by host
        self.welcome = self._new_welcome()
        self.secret = (
            secrets.token_bytes(secret.SECRET_BYTES) if self.welcome is None else self.welcome.secret
        )
        self.variables = {**job.variables, _JOB_VARIABLE: self._number, **variables}
        self.environment = {**os.environ, **self.variables}
        self.network = interfaces.from_environment(self.environment)
        self.guardian = Guardian(f"{_JOB_VARIABLE}={self._number}", self._loop.children, self.warn)
        self._stack.callback(self.guardian.dismiss)
        self._stack.callback(self._loop.children.kill_strays)
        self._offered: secret.Offer | None = None
        self._folder = ""  # in which the job has been started

    def _new_welcome(self) -> "Welcome | None":
        if self._job.reach.rendezvous is None:
            return None
        from .welcome import Welcome  # only for those who need it: a job starts quickly

        welcome = Welcome(self._job, self._loop, self._number, self.warn)
        self._stack.callback(lambda: welcome.part(self.status))
        return welcome

    @property
    def start_seconds(self) -> float:
        """What the ranks have for their start; of a value that they cannot use, they say so."""
        return variables.usable_seconds(START_TIMEOUT_VARIABLE, self.environment, RANK_SECONDS)

    def is_here(self, host: str) -> bool:
        """Whether the launcher starts the processes of a host itself."""
        return is_this_host(host) and self.joined(host) is None

    def joined(self, host: str) -> "Joined | None":
        """The way to a host that has dialled."""
        return None if self.welcome is None else self.welcome.joining.way(host)

    def remote(self, host: str, way: Way | None = None) -> RemoteNode:
        """Another host, which is not dialled yet, or that has dialled, by ``way``."""
        self._logins[host] += 1
        marker = f"{_JOB_VARIABLE}={self._number_at(host)}"
        if way is None:
            reach, patience = self._job.reach, timeouts.lost_seconds(self.environment, PATIENCE)
            target = ssh.target(host, reach.ssh_port, reach.ssh_identity_file, reach.shell, patience)
            way = Route(target, self._loop, self.guardian)
        return RemoteNode(way, marker, self.network.ports, self._job.work.wdir)

    def wait(self) -> "tuple[list[Joined], Sequence[Host]]":
        """Waits for the hosts that dial. Returns the ways to them, and all hosts of the job."""
        return ([], self._job.hosts) if self.welcome is None else self.welcome.wait()

    def reach(self, remotes: Sequence[RemoteNode], hosts: Sequence[str]) -> None:
        """Brings up the agents of other hosts, on all at the same time; ``hosts`` are all that the user has
        named. Raises ReachError.
        """
        if remotes:  # where it has been removed, that is known before anybody logs in
            self._folder = working_directory()
        self._stack.callback(lambda: reach.part(self._loop, remotes, self.status))
        seconds = self._job.reach.start_seconds or timeouts.START_SECONDS
        reach.greet(self._loop, remotes, seconds, self._job.reach.fan_out)
        for line in reach.ways(remotes):
            self.inform(line)
        reach.check_machines(remotes, next(filter(is_this_host, hosts), None))

    def start_here(self, host: str, work: Work, events: Events) -> LocalNode:
        """Starts work on this host, which the job calls ``host``. What ``work`` has as its environment counts
        less than what the launcher itself has.
        """
        node = LocalNode(host, self._loop.selector, self._loop.children, self.guardian, events)
        self._stack.callback(node.close)
        if self._offered is None:
            self._offered = secret.offer(self.secret)
            self._stack.callback(self._offered.close)
        inherited = _inherited()
        secret.remove(inherited)
        own = {**inherited, **self._variables_at(host), **self._offered.variables}
        node.start(replace(work, environment={**work.environment, **own}))
        return node

    def start_there(self, node: RemoteNode, work: Work, events: Events) -> RemoteNode:
        """Has the agent of another host start work."""
        own = {**self._variables_at(node.host), _JOB_VARIABLE: self._number_at(node.host)}
        said = replace(work, environment=own)
        node.start(said, self.secret, self._folder or working_directory(), _inherited(), events)
        return node

    def store(self, key: bytes, size: int, remotes: Sequence[RemoteNode] | None) -> StoreServer:
        """A new one for ``size`` ranks that prove ``key``, where those on ``remotes`` reach it; None: all are
        on this host.
        """
        if remotes is None:
            return StoreServer(key, size, say=self.warn)
        addresses = reach.own_addresses(remotes, self.network)
        return StoreServer(key, size, "tcp", self.warn, addresses, ports=self.network.ports)

    def attach(self, store: StoreServer) -> None:
        """To the store of the job, before it serves: ranks tell there how far they are, and get ``call``."""
        self._view.attach(store)
        if self._job.call is not None:
            self._job.call.attach(store)

    def inform(self, text: str) -> None:
        """A line for those who have asked for more."""
        if is_logged("info", self.environment):
            self._complaints.say(f"info: {escaped(text)}")

    def warn(self, text: str) -> None:
        """A line for people."""
        self._complaints.say(f"warning: {text}")

    def _variables_at(self, host: str) -> dict[str, str]:
        """Those of the processes on one host."""
        found = dict(self.variables)
        for name, own in self._job.of_hosts.items():
            if identity(name) == identity(host):
                found |= own
        return found

    def _number_at(self, host: str) -> str:
        """That of the job, for the latest login on a host: the agent of each ends its own processes only."""
        return f"{self._number}.{host}.{self._logins[host]}"


def _inherited() -> dict[str, str]:
    """What processes get of the launcher's own environment."""
    return {name: value for name, value in os.environ.items() if name not in _OWN}
