"""The workers of an elastic job: on this host, or on others by an agent that ssh starts there."""

import time
from collections.abc import Callable

from horovod.bootstrap.start_settings import WORKER_VARIABLE

from ..ending import Exit
from ..nodes.node import STREAMS, Node
from ..nodes.remote import RemoteNode
from ..rank_output import RankOutput
from ..report import evidence
from .worker_output import WorkerOutputs

NewNode = Callable[[str], tuple[Node, RemoteNode | None]]
"""Makes the node of a host; once more, where it is another one that has no work yet."""


_START_STATUS = 1
_KEPT = 16  # of workers that have ended, what they wrote; of older ones it is forgotten


class Crew:
    """Starts, ends and names workers. ``nodes``, ``hosts`` (by worker) and ``outputs`` are what a supervisor
    takes, and grow.

    Args:
        maker: makes the entries of ``outputs``.
        begin: gives a node of another host its work, when its agent is there.
        seconds: until an agent has to be there.
        wake: ends the waiting of the loop.
    """

    def __init__(
        self,
        new_node: NewNode,
        maker: WorkerOutputs,
        begin: Callable[[RemoteNode], None],
        slots: Callable[[str], int],
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self.nodes: list[Node] = []
        self.hosts: list[str] = []
        self.outputs: dict[tuple[int, str], RankOutput] = {}
        self._new_node = new_node
        self._maker = maker
        self._begin = begin
        self._slots = slots
        self._seconds = seconds
        self._wake = wake
        self._by_host: dict[str, Node] = {}
        self._reaching: dict[str, RemoteNode] = {}
        self._pending: dict[str, list[int]] = {}  # workers whose host is being reached
        self._deadlines: dict[str, float] = {}
        self._failed: list[Exit] = []
        self._gone: list[int] = []  # workers that have ended and whose outputs are kept, in that order

    def start(self, worker: int, host: str) -> None:
        """Starts a worker. One that cannot be started ends at once: see ``take_failed``."""
        assert worker == len(self.hosts)
        self.hosts.append(host)
        for name in STREAMS:
            self.outputs[worker, name] = self._maker.new(worker, name)
        node = self._node(host)
        if host in self._pending:
            self._pending[host].append(worker)
            return
        self._start_on(node, worker)

    def signal(self, worker: int, number: int) -> None:
        """Sends a signal to one."""
        host = self.hosts[worker]
        if worker in self._pending.get(host, []):
            self._pending[host].remove(worker)
            self._fail(worker, "", 128 + number)
        elif node := self._by_host.get(host):
            node.signal_one(worker, number)

    def name(self, worker: int, rank: int | None) -> None:
        """What a worker writes from now on is that of a rank."""
        for stream in STREAMS:
            self._maker.name(self.outputs[worker, stream], worker, stream, rank)

    def evidence(self, worker: int, room: int) -> list[str]:
        """A title, and the most telling lines that a worker has written, ``room`` at most."""
        if worker not in self._gone:
            return []
        stdout, stderr = (self.outputs[worker, name].tail for name in STREAMS)
        title, lines = evidence(worker, room, stdout, stderr, "worker")
        return [title, *(f"  {line}" for line in lines)] if lines else []

    def take_failed(self, now: float) -> list[Exit]:
        """How workers ended that have never run, since the last call."""
        for host in list(self._pending):
            self._advance(host, now)
        found, self._failed = self._failed, []
        return found

    def ended(self, worker: int) -> None:
        """A worker has ended. What it wrote is kept for a while: a report may show it."""
        self._gone.append(worker)
        for old in self._gone[:-_KEPT]:
            if all(self.outputs[old, name].is_ended for name in STREAMS):
                self._gone.remove(old)
                for name in STREAMS:
                    del self.outputs[old, name]

    def stop(self) -> None:
        """Nothing more is started: not on hosts either that are still being reached."""
        for host in list(self._pending):
            for worker in self._forget(host):
                self._end_outputs(worker)

    def next_time(self) -> float:
        """When to call ``take_failed`` at the latest."""
        return min(self._deadlines.values(), default=float("inf"))

    def _node(self, host: str) -> Node:
        node = self._by_host.get(host)
        if node is not None and node.is_lost:  # another one, by a new login
            node.close()
            self.nodes.remove(node)
            node = None
        if node is None:
            node, remote = self._new_node(host)
            self._by_host[host] = node
            self.nodes.append(node)
            if remote is not None and remote.greeting is not None:
                self._begin(remote)
            elif remote is not None:
                self._reaching[host], self._pending[host] = remote, []
                self._deadlines[host] = time.monotonic() + self._seconds
                self._dial(remote)
        return node

    def _dial(self, node: RemoteNode) -> None:
        try:
            node.dial(None)
        except OSError as error:  # a limit of this host, which is no reason to end the job
            node.failure = f"{node.host}: ssh cannot be started: {error}"
            self._wake()

    def _advance(self, host: str, now: float) -> None:
        """Goes on with a host that is being reached."""
        node = self._reaching[host]
        if node.greeting is not None:
            self._begin(node)
            for worker in self._forget(host):
                self._start_on(node, worker)
        elif node.failure is not None or now >= self._deadlines[host]:
            why = node.failure or f"{host}: no agent came up within {self._seconds:g} s"
            node.close()
            del self._by_host[host]
            self.nodes.remove(node)
            for worker in self._forget(host):
                self._fail(worker, why, _START_STATUS)
        elif node.wants_to_dial(now):
            self._dial(node)

    def _forget(self, host: str) -> list[int]:
        del self._deadlines[host], self._reaching[host]
        return self._pending.pop(host)

    def _start_on(self, node: Node, worker: int) -> None:
        try:
            host = self.hosts[worker]
            own = {WORKER_VARIABLE: str(worker), "HOROVOD_HOSTNAME": host, "PYTHONUNBUFFERED": "1"}
            node.start_worker(worker, own, max(1, self._slots(host)))
        except OSError as error:
            self._fail(worker, f"could not be started: {error}", _START_STATUS)

    def _fail(self, worker: int, why: str, status: int) -> None:
        self._end_outputs(worker)
        self._failed.append(Exit(worker, status, lost=why))
        self._wake()

    def _end_outputs(self, worker: int) -> None:
        for name in STREAMS:
            self.outputs[worker, name].end()
