"""Where the ranks of one executor meet, and what is heard of them there: a store like that of horovodrun.

It is in the driver. A driver outside of the cluster, of Ray Client, can be dialled by nobody: then an actor
has it.
"""

import queue
import secrets
import socket
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ray
from ray.util import client

from horovod.bootstrap.network import interfaces
from horovod.bootstrap.secret import SECRET_BYTES
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.store.verdicts import Verdict

OUTPUT, LOG = "output/", "log/"  # of keys that ranks set
VERDICT, WARNING, SYNC, END = "verdict", "warning", "sync", "end"
_MOST_EVENTS = 1000  # of which an output has 64 KiB at most: who prints more waits for the driver


class Event(NamedTuple):
    """Something that is heard: ``kind`` is a key, or one of the words above."""

    kind: str
    rank: int = 0
    data: bytes = b""


class Meeting:
    """A store for ``size`` ranks. ``variables`` are those of the job."""

    def __init__(self, size: int, variables: Mapping[str, str]) -> None:
        network = interfaces.from_environment(variables)
        self._events: queue.Queue[Event] = queue.Queue(_MOST_EVENTS)
        self._secret = secrets.token_bytes(SECRET_BYTES)
        hosts = _own_addresses(network)
        self._store = StoreServer(self._secret, size, "tcp", self._warn, hosts, ports=network.ports)
        for prefix in (OUTPUT, LOG):
            self._store.divert(prefix.encode(), self._take)
        self._store.watch_start(float("inf"), lambda: self._events.put(Event(VERDICT)))
        self._store.start()

    def terms(self) -> tuple[str, bytes]:
        """Where the ranks dial, and what they prove there."""
        return self._store.address, self._secret

    def poll(self, seconds: float) -> list[Event]:
        """What has been heard since the last call; waits so long at most."""
        found = []
        try:
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found

    def tell(self, kind: str) -> None:
        """Adds an event behind all that has been heard so far."""
        self._events.put(Event(kind))

    def verdicts(self, ended: Collection[int], seconds: float) -> list[Verdict]:
        """What the ranks hold for the first cause; see StoreServer."""
        return self._store.verdicts(ended, seconds)

    def close(self) -> None:
        """Ranks see it as the end of the job."""
        self._store.close()
        self.tell(END)

    def _take(self, rank: int, key: bytes, value: bytes) -> str:
        self._events.put(Event(key.decode(errors="replace"), rank, bytes(value)))
        return ""

    def _warn(self, text: str) -> None:
        self._events.put(Event(WARNING, data=text.encode(errors="replace")))


class RemoteMeeting:
    """One that an actor has, by the same verbs."""

    def __init__(self, size: int, variables: Mapping[str, str]) -> None:
        options = {"num_cpus": 0, "max_concurrency": 4}  # ``poll`` waits beside the others
        self._actor: Any = ray.remote(Meeting).options(**options).remote(size, dict(variables))

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._actor, verb)
        return lambda *arguments: ray.get(method.remote(*arguments))

    def close(self) -> None:
        """Ends the actor, too."""
        if ray.is_initialized():
            ray.get(self._actor.close.remote())


def new_meeting(size: int, variables: Mapping[str, str]) -> Meeting:
    """Where this driver's ranks can reach it."""
    if client.ray.is_connected():
        return RemoteMeeting(size, variables)  # type: ignore[return-value]  # the same verbs
    return Meeting(size, variables)


def _own_addresses(network: interfaces.Network) -> list[str]:
    """Of this host, the one that Ray knows first."""
    existing = [name for _, name in socket.if_nameindex()]
    routes = [ray.util.get_node_ip_address(), *interfaces.default_routes()]
    return interfaces.chosen(network, interfaces.addresses(), existing, routes)
