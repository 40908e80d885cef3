"""Where the ranks of a job run, and at which addresses they listen, as they tell each other in the store."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from horovod.version import __version__

from ..errors import BootstrapError
from ..gpu_libraries import NONE, GpuLibraries
from ..gpu_libraries import VARIABLE as _GPU_VARIABLE
from ..identity import Identity
from ..network import endpoints
from ..network.interfaces import is_loopback
from ..processes import NOBODY, Process, own_process
from ..text import shown

_FIELDS = 11
_DEMANDED = " demanded"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NETWORK = "/proc/self/ns/net"


class Place(NamedTuple):
    """What one rank tells: its host's name, the machine that it runs on, how many ranks its host has, why the
    system refuses it shared memory (empty: it does not), its addresses, the best for its own host first; the
    wiring that it makes, its version, its process, the library of its collectives (empty: our own), that for
    tensors on GPUs (empty: none), whether its user insists on that, and how it stages tensors in shared
    memory or encrypts them.
    """

    host: str
    machine: str
    local_size: int
    refusal: str
    addresses: tuple[str, ...]
    wiring: str = "shm"
    version: str = __version__
    process: Process = NOBODY
    library: str = ""
    gpu_library: str = ""
    gpu_demanded: bool = False
    staging: str = ""

    @property
    def manner(self) -> tuple[str, str, str, str]:
        """What must be alike on all ranks, for they cut tensors by it."""
        return self.version, self.wiring, self.staging, self.library

    def encode(self) -> bytes:
        """Lines of text."""
        refusal = " ".join(self.refusal.split())
        where = (self.host, self.machine, str(self.local_size), refusal, ",".join(self.addresses))
        process = f"{self.process.pid} {self.process.start_time}"
        gpu = self.gpu_library + _DEMANDED * self.gpu_demanded
        told = (*where, self.wiring, self.version, process, self.library, gpu, self.staging)
        return "\n".join(told).encode(errors="replace")


def place_of(
    identity: Identity,
    refusal: str | None,
    addresses: Sequence[str],
    wiring: str,
    library: str = "",
    gpu: GpuLibraries = NONE,
    staging: str = "",
) -> Place:
    """The place of this process. ``refusal``: why it gets no shared memory."""
    host = " ".join(identity.hostname.split())
    return Place(
        host,
        _machine(),
        identity.local_size,
        refusal or "",
        tuple(addresses),
        wiring,
        process=own_process(),
        library=library,
        gpu_library=gpu.name,
        gpu_demanded=gpu.demanded,
        staging=staging,
    )


def decode(rank: int, value: bytes) -> Place:
    """The place that ``rank`` tells. Raises BootstrapError for what is none."""
    lines = value.decode(errors="replace").split("\n")
    if len(lines) != _FIELDS or not lines[2].isdecimal() or len(lines[2]) > 9:
        raise BootstrapError(f"rank {rank} tells where it runs in a form that this version does not know")
    pid, _, start_time = lines[7].partition(" ")
    process = Process(int(pid), start_time) if pid.isdecimal() and len(pid) <= 9 else NOBODY
    addresses, wiring, version = tuple(lines[4].split(",")), lines[5], lines[6]
    gpu, demanded = lines[9].removesuffix(_DEMANDED), lines[9].endswith(_DEMANDED)
    where = (lines[0], lines[1], int(lines[2]), lines[3], addresses)
    return Place(*where, wiring, version, process, lines[8], gpu, demanded, lines[10])


def check_alike(places: Sequence[Place]) -> None:
    """Makes sure that all ranks cut tensors in the same way, which follows from their version, from how they
    are linked, from how they stage tensors, and from the library of their collectives.

    Raises:
        BootstrapError: two differ, with one text on every rank.
    """
    first = places[0]
    for rank, place in enumerate(places):
        if place.manner != first.manner:
            raise BootstrapError(_difference(rank, place, first))


def _difference(rank: int, place: Place, first: Place) -> str:
    here, there = f"rank {rank} on {shown(place.host)}", f"rank 0 on {shown(first.host)}"
    if place.version != first.version:
        return (
            f"{here} has version {shown(place.version)} of horovod, and {there} has "
            f"{shown(first.version)}: install the same on all hosts"
        )
    if place.wiring != first.wiring:
        tcp, other = (here, there) if place.wiring == "tcp" else (there, here)
        return (
            f"HOROVOD_TRANSPORT is tcp on {tcp}, but not on {other}: give all ranks the same. A launcher may "
            "have to be told to pass it to other hosts"
        )
    if place.staging != first.staging:
        return (
            f"{here} has {shown(place.staging)}, and {there} has {shown(first.staging)}: give all ranks the "
            "same"
        )
    return (
        f"{here} reduces on the CPU by {_library(place)}, and {there} by {_library(first)}: give all ranks "
        "the same HOROVOD_CPU_OPERATIONS, and install the same version of the library on all hosts"
    )


def rank_without_gpus(places: Sequence[Place]) -> int | None:
    """The first rank by whom tensors cannot travel from GPU to GPU as by the others, or None: then they do so
    in this job, and else all go through host memory.

    Raises:
        BootstrapError: a rank demands it, with one text on every rank.
    """
    demanding = next((rank for rank, place in enumerate(places) if place.gpu_demanded), None)
    wanted = places[demanding or 0].gpu_library
    lacking = (rank for rank, place in enumerate(places) if not wanted or place.gpu_library != wanted)
    first = next(lacking, None)
    if first is not None and demanding is not None:
        place = places[first]
        raise BootstrapError(
            f"rank {demanding} on {shown(places[demanding].host)} asks for {_GPU_VARIABLE}=nccl, and rank "
            f"{first} on {shown(place.host)} has {_gpu_library(place)}: install NCCL (pip install "
            "nvidia-nccl-cu12 or -cu13) and the driver of the GPUs on all hosts, or unset the variable on "
            "all ranks"
        )
    return first


def _gpu_library(place: Place) -> str:
    return shown(place.gpu_library) if place.gpu_library else "no NCCL, or does not want it"


def _library(place: Place) -> str:
    return shown(place.library) if place.library else "horovod itself"


def number_hosts(places: Sequence[Place]) -> list[int]:
    """For each rank the number of its host, counted in the order of the hosts' first ranks; empty when all
    are on one host.

    Ranks are on one host when their launcher gives it one name and they see one machine and one network on
    it: only then do Unix sockets, by which they share memory, lead from one to the other. Raises
    BootstrapError, with one text on every rank, when a host has not as many ranks as the launcher says.
    """
    numbers: dict[tuple[str, str], int] = {}
    hosts = [numbers.setdefault((place.host, place.machine), len(numbers)) for place in places]
    counts = Counter(hosts)
    for rank, place in enumerate(places):
        count = counts[hosts[rank]]
        if count != place.local_size:
            raise BootstrapError(_contradiction(rank, place, count, places))
    return hosts if len(numbers) > 1 else []


def neighbours(rank: int, places: Sequence[Place]) -> list[Process]:
    """The processes of the other ranks on the machine of ``rank``."""
    own = places[rank]
    return [place.process for place in places if place is not own and place.machine == own.machine]


def host_names(places: Sequence[Place], hosts: Sequence[int]) -> list[str]:
    """By the number of the host, for people; empty when there is one."""
    return [shown(places[hosts.index(number)].host) for number in range(max(hosts, default=-1) + 1)]


def rank_names(places: Sequence[Place], hosts: Sequence[int]) -> list[str]:
    """Of all ranks, for people: with the host where there are several."""
    names = host_names(places, hosts)
    return [
        f"rank {rank} on {names[hosts[rank]]}" if names else f"rank {rank}" for rank in range(len(places))
    ]


def ways_to(peer: Place, own: Place) -> list[str]:
    """The TCP addresses at which ``own`` may reach ``peer``, in the order in which to try them.

    Loopback leads to ranks that see the same network, and there alone; first, since it always does. An
    address that both have, as hosts of containers do, leads nobody to the other. Of an address that means
    something on one link only, the peer knows its own end: here it may be any of this rank's links.
    """
    told, own_hosts = _tcp(peer), {host for host, _port in _tcp(own)}
    if peer.machine == own.machine:
        return [endpoints.joined(*way) for way in sorted(told, key=lambda way: not is_loopback(way[0]))]
    links = sorted({host.partition("%")[2] for host in own_hosts if "%" in host})
    ways = []
    for host, port in told:
        bare, _, link = host.partition("%")
        if link:
            here = sorted(links, key=lambda name: name != link)
            ways += [endpoints.joined(f"{bare}%{name}", port) for name in here]
        elif not is_loopback(host) and host not in own_hosts:
            ways.append(endpoints.joined(host, port))
    return ways


def _tcp(place: Place) -> list[tuple[str, int]]:
    return [found for address in place.addresses if (found := endpoints.split(address))]


def _contradiction(rank: int, place: Place, count: int, places: Sequence[Place]) -> str:
    named = sum(other.host == place.host for other in places)
    told = place.local_size
    text = f"rank {rank}: its launcher says that its host has {told} of the ranks, but it has {count}"
    if named != count:
        return (
            f"{text}: {named} ranks name it {shown(place.host)}, and not all of them see the same machine "
            "and network. Give each machine or container a HOROVOD_HOSTNAME of its own"
        )
    return (
        f"{text}: it is {shown(place.host)}. Is HOROVOD_LOCAL_SIZE wrong, or what the launcher sets in its "
        "place? Where one machine stands for several hosts, give each a HOROVOD_HOSTNAME of its own"
    )


def _machine() -> str:
    """Equal for processes between which Unix sockets lead, and for no others."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat(_NETWORK).st_ino}"
    except OSError:  # no /proc: what the launcher says decides alone
        return os.uname().nodename
