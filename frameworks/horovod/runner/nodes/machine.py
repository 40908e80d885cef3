"""Whether two names of hosts mean one machine, where both would give one device to a local rank 0."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..hosts import Host

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACES = ("/proc/self/ns/pid", "/proc/self/ns/net")


@dataclass(frozen=True)
class Place:
    """What a host was called, and where that has led.

    ``machine`` is its ``identity``, ``address`` the one at which ssh has come to it; None: not known.
    ``is_here``: the same machine as this one, at an address of this one.
    """

    name: str
    machine: str | None
    address: str | None
    is_here: bool = False


def identity() -> str | None:
    """The same for all processes that see each other on one running machine; a container is a machine of its
    own. None: not known.
    """
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            parts = [file.read().strip(), *(os.stat(path).st_ino for path in _NAMESPACES)]
    except OSError:
        return None
    return "/".join(map(str, parts))


def twins(places: Sequence[Place]) -> list[list[str]]:
    """The names that mean one machine, at the same address of it. Pure.

    At another address of the same machine a host counts as another one: so somebody may want it.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for place in places:
        if place.machine is not None and (place.is_here or place.address is not None):
            address = "" if place.is_here else str(place.address)
            found.setdefault((place.machine, address), []).append(place.name)
    return [names for names in found.values() if len(names) > 1]


def together(hosts: Sequence[Host], machines: Mapping[str, str | None]) -> list[list[Host]]:
    """Hosts that are one machine, of those whose machine is known by their name; each group stands where its
    first host does. Pure.
    """
    found: dict[str, list[Host]] = {}
    for host in hosts:
        found.setdefault(machines.get(host.name) or host.name, []).append(host)
    return list(found.values())
