"""The hosts of one job, static or elastic: the ways to them, and what all processes there have in common."""

import argparse
import collections
import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence

from horovod.bootstrap import secret
from horovod.bootstrap.network import interfaces
from horovod.bootstrap.start_settings import START_TIMEOUT_VARIABLE
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.text import escaped, is_logged

from ..command_line import options
from ..nodes import reach
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.loop import Loop
from ..nodes.node import Events
from ..nodes.remote import RemoteNode
from ..nodes.route import Route
from ..nodes.way import Way
from ..sink import Sink
from . import is_this_host, setup
from .welcome import Welcome

JOB_VARIABLE = "HOROVOD_JOB_ID"
_START_SECONDS = 30.0


class JobHosts:
    """``stack`` gets what is to be closed; ``status`` is that of the job, for hosts that leave with it.

    ``variables`` are those of all processes of the job, and may grow until the first one starts;
    ``environment`` is the launcher's own with them, as they are at the beginning.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        loop: Loop,
        complaints: Sink,
        stack: contextlib.ExitStack,
        variables: Mapping[str, str],
    ) -> None:
        """``variables`` are those of this kind of job. Raises ValueError where the options cannot be used."""
        self.status = 1
        self._arguments = arguments
        self._loop = loop
        self._complaints = complaints
        self._stack = stack
        self._number = secrets.token_hex(8)
        self._logins: collections.Counter[str] = collections.Counter()  # by host
        self.welcome = self._new_welcome()
        self.secret = (
            secrets.token_bytes(secret.SECRET_BYTES) if self.welcome is None else self.welcome.secret
        )
        self.variables = {**options.environment(arguments), JOB_VARIABLE: self._number, **variables}
        self.environment = {**os.environ, **self.variables}
        self.network = interfaces.from_environment(self.environment)
        self.guardian = Guardian(f"{JOB_VARIABLE}={self._number}", loop.children, self.warn)
        stack.callback(self.guardian.dismiss)
        stack.callback(loop.children.kill_strays)
        self._offered: secret.Offer | None = None

    def _new_welcome(self) -> Welcome | None:
        if self._arguments.rendezvous is None:
            return None
        welcome = Welcome(self._arguments, self._loop, self._number, self.warn)
        self._stack.callback(lambda: welcome.part(self.status))
        return welcome

    @property
    def start_seconds(self) -> float:
        """What the ranks have for their start; of a value that is no number, they say so."""
        try:
            return float(self.environment.get(START_TIMEOUT_VARIABLE) or _START_SECONDS)
        except ValueError:
            return float("inf")

    def remote(self, host: str, way: Way | None = None) -> RemoteNode:
        """Another host, which is not dialled yet, or that has dialled, by ``way``."""
        self._logins[host] += 1
        marker = f"{JOB_VARIABLE}={self.number_at(host)}"
        way = way or Route(setup.target(self._arguments, host), self._loop, self.guardian)
        return RemoteNode(way, marker, self.network.ports, self._arguments.wdir)

    def reach(self, remotes: Sequence[RemoteNode], hosts: Sequence[str]) -> None:
        """Brings up the agents of other hosts, on all at the same time; ``hosts`` are all that the user has
        named. Raises ReachError.
        """
        self._stack.callback(lambda: reach.part(self._loop, remotes, self.status))
        seconds = options.start_timeout(self.environment)
        reach.greet(self._loop, remotes, seconds, setup.fan_out(self._arguments, self.environment))
        for line in reach.ways(remotes):
            self.inform(line)
        reach.check_machines(remotes, next(filter(is_this_host, hosts), None))

    def local(self, host: str, events: Events) -> LocalNode:
        """This host, which has no work yet."""
        node = LocalNode(host, self._loop.selector, self._loop.children, self.guardian, events)
        self._stack.callback(node.close)
        return node

    def inheritance(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """What processes of this host get: ``inherited`` without the secret of a job that this one is started
        in, the variables of this one, and the way to its secret.
        """
        if self._offered is None:
            self._offered = secret.offer(self.secret)
            self._stack.callback(self._offered.close)
        own = dict(inherited)
        secret.remove(own)
        return {**own, **self.variables, **self._offered.variables}

    def store(self, key: bytes, size: int, remotes: Sequence[RemoteNode] | None) -> StoreServer:
        """A new one for ``size`` ranks that prove ``key``, where those on ``remotes`` reach it; None: all are
        on this host.
        """
        if remotes is None:
            return StoreServer(key, size, say=self.warn)
        addresses = reach.own_addresses(remotes, self.network)
        return StoreServer(key, size, "tcp", self.warn, addresses, ports=self.network.ports)

    def number_at(self, host: str) -> str:
        """That of the job, for the latest login on a host: the agent of each ends its own processes only."""
        return f"{self._number}.{host}.{self._logins[host]}"

    def inform(self, text: str) -> None:
        """A line for those who have asked for more."""
        if is_logged("info", self.environment):
            self._say("info", escaped(text))

    def warn(self, text: str) -> None:
        """A line for people."""
        self._say("warning", text)

    def _say(self, level: str, text: str) -> None:
        self._complaints.put(f"horovodrun: {level}: {text}\n".encode())
