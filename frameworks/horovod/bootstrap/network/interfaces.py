"""The network interfaces of this host: at which of their addresses a rank listens for those of other hosts,
and at which ports.
"""

import ctypes
import re
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..text import shown

INTERFACES_VARIABLE, GLOO_VARIABLE = "HOROVOD_NETWORK_INTERFACES", "HOROVOD_GLOO_IFACE"
PORTS_VARIABLE = "HOROVOD_PORT_RANGE"

_PORTS = "([0-9]{1,5})-([0-9]{1,5})"
_MOST_PORT = 65535
# That a rank tells. A host of many containers has a bridge for each network of theirs, and each of their
# interfaces has an address that means something on one link only. Loopback is never left out.
_MOST_ADDRESSES, _MOST_OF_ONE_LINK = 64, 8
# Those of documentation: routes go to them as to any other host of the internet. Nothing is sent there.
_FAR_AWAY = ("192.0.2.1", "2001:db8::1")
_IFF_UP = 1
_LOOPBACK_6 = bytes(15) + b"\1"


class Network(NamedTuple):
    """What the user says of the network. ``interfaces``: those to use; none: whichever lead to the others.
    ``ports``: for everything that listens; None: any.
    """

    interfaces: tuple[str, ...] = ()
    ports: range | None = None
    said_by: str = INTERFACES_VARIABLE


ANY_NETWORK = Network()


class Address(NamedTuple):
    """An address of an interface that is up: ``host`` in numbers, with "%interface" behind it where it means
    something on the links of that interface only.
    """

    interface: str
    host: str


def from_environment(environ: Mapping[str, str]) -> Network:
    """Raises ValueError for what is no range of ports."""
    said_by = INTERFACES_VARIABLE if environ.get(INTERFACES_VARIABLE) else GLOO_VARIABLE
    names = (name.strip() for name in environ.get(said_by, "").split(","))
    return Network(tuple(filter(None, names)), _ports(environ.get(PORTS_VARIABLE, "")), said_by)


def addresses() -> list[Address]:
    """Of all interfaces of this host that are up."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs")
    found, entry = [], first
    try:
        while entry:
            host = _host(entry.contents)
            if host:
                found.append(Address(entry.contents.name.decode(errors="replace"), host))
            entry = ctypes.cast(entry.contents.next, ctypes.POINTER(_Entry))
    finally:
        libc.freeifaddrs(first)
    return found


def chosen(
    network: Network, found: Sequence[Address], existing: Sequence[str], routes: Sequence[str]
) -> list[str]:
    """The addresses to listen at, the best first: of the interfaces that the user has chosen, in their order;
    otherwise those of ``routes``, then the others, then those that mean something on one link only, and
    loopback.

    Args:
        network: the user's choice.
        found: the addresses of this host.
        existing: the names of its interfaces.
        routes: some of the addresses, the best first: by which the store is reached, or other hosts.

    Raises:
        ValueError: there is no such interface, or the chosen ones have no address.
    """
    if not network.interfaces:
        places = {route: place for place, route in reversed(list(enumerate(routes)))}
        hosts = [address.host for address in found]
        return _limited(sorted(hosts, key=lambda host: (_remoteness(host), places.get(host, len(routes)))))
    there = f"this host has {', '.join(sorted(existing))}"
    for name in network.interfaces:
        if name not in existing:
            raise ValueError(f"{network.said_by}: there is no network interface {shown(name)}; {there}")
    hosts = [address.host for name in network.interfaces for address in found if address.interface == name]
    if not hosts:
        names = ",".join(network.interfaces)
        raise ValueError(f"{network.said_by}={names}: no address, or not up; {there}")
    return _limited(sorted(hosts, key=_remoteness))


def _limited(hosts: Sequence[str]) -> list[str]:
    everywhere, of_one_link, own = ([h for h in hosts if _remoteness(h) == number] for number in range(3))
    return [*everywhere[:_MOST_ADDRESSES], *of_one_link[:_MOST_OF_ONE_LINK], *own[:_MOST_OF_ONE_LINK]]


def default_routes() -> list[str]:
    """The addresses of this host from which packets go to hosts far away."""
    return list(filter(None, map(route_to, _FAR_AWAY)))


def route_to(host: str) -> str:
    """The address of this host from which packets go to ``host``; empty where there is none."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, IndexError, UnicodeError):
        return ""


def packed(host: str) -> bytes:
    """The 4 or 16 bytes of an address in numbers, without "%interface". Raises ValueError for any other
    text.
    """
    numbers, percent, interface = host.partition("%")
    family = socket.AF_INET6 if ":" in numbers else socket.AF_INET
    if percent and (family == socket.AF_INET or not interface or "%" in interface):
        raise ValueError(f"{shown(host)} is no address")
    try:
        return socket.inet_pton(family, numbers)
    except OSError:
        raise ValueError(f"{shown(host)} is no address in numbers") from None


def is_loopback(host: str) -> bool:
    """Whether an address leads nowhere but to the same machine."""
    address = packed(host)
    return address[0] == 127 if len(address) == 4 else address == _LOOPBACK_6


def _is_of_one_link(host: str) -> bool:
    """Whether it is of 169.254.0.0/16 or fe80::/10."""
    first, second, *_ = address = packed(host)
    return (first, second) == (169, 254) if len(address) == 4 else first == 0xFE and second & 0xC0 == 0x80


def _remoteness(host: str) -> int:
    return 2 if is_loopback(host) else 1 if _is_of_one_link(host) else 0


def _ports(text: str) -> range | None:
    if not text:
        return None
    match = re.fullmatch(_PORTS, text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last <= _MOST_PORT:
        raise ValueError(f"{PORTS_VARIABLE}={shown(text)}: expected FIRST-LAST, for example 20000-20999")
    return range(first, last + 1)


class _Entry(ctypes.Structure):
    """struct ifaddrs of the C library."""

    _fields_ = [
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("flags", ctypes.c_uint),
        ("address", ctypes.c_void_p),
        ("netmask", ctypes.c_void_p),
        ("other_end", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


def _host(entry: _Entry) -> str:
    """Empty when it is none of the internet, or not up."""
    if not entry.address or not entry.flags & _IFF_UP:
        return ""
    family = ctypes.c_ushort.from_address(entry.address).value
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(entry.address + 4, 4))
    if family != socket.AF_INET6:
        return ""
    host = socket.inet_ntop(family, ctypes.string_at(entry.address + 8, 16))
    scope = ctypes.c_uint32.from_address(entry.address + 24).value
    return f"{host}%{entry.name.decode(errors='replace')}" if scope else host
