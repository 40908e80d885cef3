"""Which links a rank has to others, and where they meet.

Every rank listens at addresses of its own, tells them the others through the store, dials those of its
neighbours that have a lower rank and accepts the higher ones; other links are made later, on demand. Ranks of
one host meet at Unix sockets, unless shared memory is not wanted; all others meet over TCP, at the first
address that answers.
"""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..errors import BootstrapError, SharedMemoryError
from ..gpu_libraries import NONE, GpuLibraries
from ..identity import HOROVODRUN, Identity
from ..network import endpoints, interfaces
from ..network.interfaces import ANY_NETWORK, Network
from ..processes import Process
from ..shared_memory import shared_memory_refusal
from ..start_settings import HOST_SECONDS
from ..store.client import StoreClient
from ..store.line import connect_again
from ..store.messages import ARRIVED
from ..text import escaped, log, shown, warn
from .linker import Link, Linker
from .neighbours import at_start
from .on_demand import OnDemand
from .places import (
    Place,
    check_alike,
    decode,
    host_names,
    neighbours,
    number_hosts,
    place_of,
    rank_names,
    rank_without_gpus,
    ways_to,
)

WIRINGS = ("shm", "tcp")
# Of the start timeout, for the links. Who waits for a neighbour behind them, in the core, waits longer: so
# the rank that cannot be reached is named by those who see it.
_LINKING_SHARE = 0.5


class Entry(NamedTuple):
    """A rank that enters a generation, with a connection to the store and ``timeout`` seconds for its start.

    ``library`` is that of its collectives, and ``staging`` how it stages tensors; both must be those of all.
    ``gpu``: the libraries for GPUs that it could use. ``patience``: for how long the launcher, if it is on
    another host, may be out of reach later.
    """

    identity: Identity
    generation: int
    store: StoreClient
    secret: bytes
    timeout: float
    network: Network = ANY_NETWORK
    library: str = ""
    gpu: GpuLibraries = NONE
    staging: str = ""
    patience: float = HOST_SECONDS


class Mesh(NamedTuple):
    """The wiring that was made; the number of each rank's host (empty: there is one), and the hosts' names;
    its links (descriptor, peer, role, send key, receive key), whose descriptors are the caller's; when all
    ranks had arrived, on the clock of time.monotonic: about the same moment for all; the processes of the
    other ranks on this machine; the libraries by which all ranks have tensors travel between GPUs; and what
    makes further links, the caller's too (None: there are none).
    """

    wiring: str
    hosts: list[int]
    host_names: list[str]
    links: list[Link]
    arrived: float
    neighbours: list[Process]
    gpu: GpuLibraries = NONE
    on_demand: OnDemand | None = None

    def close(self) -> None:
        """Where nobody takes the links."""
        for descriptor, *_ in self.links:
            os.close(descriptor)
        if self.on_demand is not None:
            self.on_demand.close()


def connect_mesh(entry: Entry, wiring: str, deadline: float) -> Mesh:
    """Waits for all ranks and makes the links to this rank's neighbours.

    "shm": Unix sockets within a host, TCP between hosts. "tcp": TCP alone. "auto": "shm", or "tcp" when the
    system refuses shared memory to any of the ranks, which is logged. Sockets are blocking and close-on-exec.
    Raises BootstrapError when not all ranks have arrived by ``deadline``, when the links are not made within
    half of the timeout after that, or when shared memory is asked for and refused; nothing stays open then.
    """
    if wiring not in (*WIRINGS, "auto"):
        raise ValueError(f"unknown wiring {wiring!r}: expected one of {', '.join(WIRINGS)} or auto")
    if wiring == "tcp":
        return _connect(entry, wiring, deadline)
    try:
        return _connect(entry, "shm", deadline)
    except SharedMemoryError as error:
        if wiring == "shm":
            raise
        if entry.identity.rank == error.rank:
            warn(error.rank, f"{error}; the job goes on over TCP, which is slower")
        return _connect(entry, "tcp", time.monotonic() + _LINKING_SHARE * entry.timeout, scope="mesh-again")


def _connect(entry: Entry, wiring: str, deadline: float, scope: str = ARRIVED) -> Mesh:
    identity, generation, store, secret, timeout, *_ = entry
    rank, size = identity.rank, identity.size
    share = _LINKING_SHARE * timeout
    with contextlib.ExitStack() as stack:
        listeners = _listen(stack, identity, wiring, entry.network, store.own_host)
        log("debug", rank, f"listens for other ranks at {escaped(', '.join(a for _, a in listeners))}")
        refusal = shared_memory_refusal(identity.local_size) if wiring == "shm" else None
        keys = [f"{generation}/{scope}/{peer}" for peer in range(size)]
        addresses = [address for _, address in listeners]
        place = place_of(identity, refusal, addresses, wiring, entry.library, entry.gpu, entry.staging)
        store.set(keys[rank], place.encode())
        # Of all, although a few may be dialled: so every rank knows who is missing.
        left = max(0.0, deadline - time.monotonic())
        places = [decode(peer, value) for peer, value in enumerate(store.wait(keys, left))]
        arrived = time.monotonic()
        check_alike(places)
        for peer, place in enumerate(places):
            if place.refusal:
                raise SharedMemoryError(peer, place.refusal)
        hosts = number_hosts(places)
        gpu = _of_all(entry.gpu, rank, places)
        wanted = at_start(rank, hosts or [0] * size, wiring == "shm")
        sockets, names = [listener for listener, _ in listeners], rank_names(places, hosts)
        with Linker(rank, generation, secret, wanted, sockets, names, store.connection) as linker:
            # The nearest first, so that the ranks do not all knock at rank 0.
            for peer, role in sorted(wanted, reverse=True):
                if peer < rank:
                    linker.dial(_addresses_of(peer, rank, places, hosts), peer, role)
            linker.run(arrived, share)
            links = linker.take_links()
        on_demand = None
        far_launcher = identity.launcher == HOROVODRUN and store.is_over_network
        if hosts or wiring == "tcp" or far_launcher:  # else there is nothing to be made later
            stack.pop_all()  # the listeners are its own from here on
            ways = partial(_addresses_of, rank=rank, places=places, hosts=hosts)
            launcher = partial(connect_again, store.again, entry.patience)
            on_demand = OnDemand(rank, generation, secret, sockets, names, wanted, ways, share, launcher)
        others = neighbours(rank, places)
        return Mesh(wiring, hosts, host_names(places, hosts), links, arrived, others, gpu, on_demand)


def _of_all(gpu: GpuLibraries, rank: int, places: Sequence[Place]) -> GpuLibraries:
    """``gpu`` where every rank has the like; a log of level info says who has not, where others have."""
    lacking = rank_without_gpus(places)
    if lacking is None:
        return gpu
    having = next((peer for peer, place in enumerate(places) if place.gpu_library), None)
    if rank == 0 and having is not None:
        why = f"rank {having} has {shown(places[having].gpu_library)}, and rank {lacking} does not"
        log("info", 0, f"tensors on GPUs go through host memory, because {why}")
    return NONE


def _listen(
    stack: contextlib.ExitStack, identity: Identity, wiring: str, network: Network, route: str
) -> list[tuple[socket.socket, str]]:
    """At a Unix socket for the ranks of this host, at ports for those of others. ``route``: the address by
    which this host reaches the store.
    """
    listeners = [endpoints.listen("unix")] if wiring == "shm" else []
    stack.callback(_close, listeners)
    if identity.local_size == identity.size:
        if wiring == "tcp":
            listeners.append(endpoints.listen("tcp", ports=network.ports))
        return listeners
    existing = [name for _, name in socket.if_nameindex()]
    # At each address by itself: a network that does not lead to other hosts of the job finds no open port.
    hosts = interfaces.chosen(
        network, interfaces.addresses(), existing, [route, *interfaces.default_routes()]
    )
    listeners += endpoints.listen_at(hosts, network.ports)
    return listeners


def _close(listeners: Sequence[tuple[socket.socket, str]]) -> None:
    for listener, _address in listeners:
        listener.close()


def _addresses_of(peer: int, rank: int, places: Sequence[Place], hosts: Sequence[int]) -> list[str]:
    """Where ``rank`` calls ``peer``."""
    near, own = places[peer].addresses, places[rank]
    if not hosts or (hosts[peer] == hosts[rank] and near[0].startswith("unix:")):
        return list(near[:1])
    found = ways_to(places[peer], own)
    if not found:
        raise BootstrapError(
            f"rank {rank} on {shown(own.host)} knows no way to rank {peer} on {shown(places[peer].host)}, "
            f"which listens at {shown(', '.join(near))} only: let {interfaces.INTERFACES_VARIABLE} name an "
            "interface that leads to other hosts"
        )
    return found
