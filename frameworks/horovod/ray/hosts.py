"""The hosts of an elastic job: on each node of Ray an actor that has an agent of horovodrun as its child."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.bootstrap.text import escaped
from horovod.runner.call.child import show
from horovod.runner.engines import AgentProcess

from . import nodes

_LOOK_SECONDS = 0.5
_ROOM_SECONDS = 5.0  # for an actor to begin, where there is room for it
_CLOSE_SECONDS = 5.0  # for a look at the nodes to end
_AGAIN_SECONDS = 5.0  # until an agent is started again that has ended

FindHosts = Callable[[Collection[str]], Mapping[str, int]]
"""Which nodes, by their id, the job may use, and how many ranks each may run. It is told of nodes that have
not had room for as many as they could run if they were free.
"""


class HostActor:
    """An agent of horovodrun, which dials the launcher, runs the ranks of this node, and ends with this."""

    def __init__(self) -> None:
        self._serves = threading.Event()

    def serve(self, address: str, name: str, slots: int, secret: bytes, variables: Mapping[str, str]) -> int:
        """Starts the agent."""
        try:
            self._agent = AgentProcess(address, name, slots, secret, {**os.environ, **variables})
        finally:
            self._serves.set()  # without an agent, ``wait`` fails, too
        return self._agent.process.pid

    def wait(self) -> int:
        """The status of the agent, once it has ended."""
        self._serves.wait()
        return self._agent.wait()


@dataclass(frozen=True)
class Terms:
    """What all agents of a job get. ``cpus`` and ``gpus`` are those of each rank."""

    address: str
    secret: bytes = field(repr=False)
    variables: Mapping[str, str]
    cpus: float
    gpus: float


@dataclass(frozen=True)
class _Host:
    """``begun`` and ``ended``: references that are there when its agent has."""

    actor: Any
    slots: int
    begun: Any
    ended: Any
    since: float

    @property
    def has_begun(self) -> bool:
        return bool(ray.wait([self.begun], timeout=0)[0])

    @property
    def serves(self) -> bool:
        """It has begun, and not failed: there was room, and the node lives."""
        try:
            return self.has_begun and bool(ray.get(self.begun))
        except ray.exceptions.RayError:
            return False

    @property
    def has_ended(self) -> bool:
        return bool(ray.wait([self.ended], timeout=0)[0])


class Hosts:
    """Has an actor on each node that the job may use, as nodes come and go, on a thread of its own."""

    def __init__(self, find: FindHosts, terms: Terms) -> None:
        self._find = find
        self._terms = terms
        self._hosts: dict[str, _Host] = {}  # by node
        self._not_before: dict[str, float] = {}
        self._busy: set[str] = set()
        self._ended: Counter[str] = Counter()  # agents of a node
        self._closing = threading.Event()
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="hvd-ray-hosts", daemon=True)

    def begin(self, seconds: float) -> int:
        """Starts. Returns how many ranks the nodes may run that are there already, and have an agent within
        ``seconds``.
        """
        self._tend()
        hosts = list(self._hosts.values())
        self._thread.start()
        begun = [host.begun for host in hosts]
        if begun:
            ray.wait(begun, num_returns=len(begun), timeout=seconds)
        return sum(host.slots for host in hosts if host.serves)

    def close(self) -> None:
        """Ends the agents that have not ended with the job. A discovery of the user's that hangs is left to
        itself: the job has its results.
        """
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)
        for host in list(self._hosts.values()):
            ray.kill(host.actor)
        self._hosts.clear()

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                self._tend()
            except (ray.exceptions.RayError, ConnectionError):  # the cluster is busy
                pass
            except Exception as error:  # of the user's discovery
                self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            show(sys.stderr, f"horovod.ray: warning: the nodes stay as they were: {escaped(text)}\n")

    def _tend(self) -> None:
        now, alive = time.monotonic(), nodes.alive()
        for node, host in list(self._hosts.items()):
            if not host.has_begun and now > host.since + _ROOM_SECONDS:
                self._busy.add(node)
                self._drop(node, now)
            elif host.has_ended or node not in alive:
                self._ended[node] += 1
                self._drop(node, now + _AGAIN_SECONDS)
        names = nodes.names_of({node: found["NodeManagerHostname"] for node, found in alive.items()})
        found = self._find(self._busy)
        if self._closing.is_set():  # it may have taken long
            return
        for node, slots in found.items():
            if slots and node in alive.keys() - self._hosts.keys() and now >= self._not_before.get(node, 0):
                # The launcher leaves a host alone whose agent was asked to go; the next one has another name.
                again = f"-again-{self._ended[node]}" if node in self._ended else ""
                self._hosts[node] = self._start(node, names[node] + again, slots)

    def _drop(self, node: str, again: float) -> None:
        ray.kill(self._hosts.pop(node).actor)
        self._not_before[node] = again

    def _start(self, node: str, name: str, slots: int) -> "_Host":
        terms = self._terms
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        needs = {"num_cpus": terms.cpus * slots, "num_gpus": terms.gpus * slots, "max_concurrency": 2}
        actor = ray.remote(HostActor).options(scheduling_strategy=where, **needs).remote()
        begun = actor.serve.remote(terms.address, name, slots, terms.secret, terms.variables)
        return _Host(actor, slots, begun, actor.wait.remote(), time.monotonic())
