"""How horovodrun starts the ranks of a job itself; here is which hosts are this one."""

import functools
import os
from collections.abc import Sequence

from ..hosts import Host

_THIS_HOST = ("localhost", "127.0.0.1", "127.0.1.1", "::1")  # the third is Debian's, for its own name


def united(hosts: Sequence[Host]) -> list[Host]:
    """``hosts`` with all names of this one under the first of them, which has the slots of all."""
    names = [host.name for host in hosts if is_this_host(host.name)]
    slots: dict[str, int] = {}
    for host in hosts:
        name = names[0] if host.name in names else host.name
        slots[name] = slots.get(name, 0) + host.slots
    return [Host(name, count) for name, count in slots.items()]


def identity(name: str) -> str:
    """The same text for names that stand for one host, as far as one can tell without asking."""
    return "localhost" if is_this_host(name) else name.lower()


def is_this_host(name: str) -> bool:
    """Whether a host that is called so is the one that this process runs on."""
    own = os.uname().nodename.lower()
    return name.lower() in (*_THIS_HOST, own) or _leads_here(name.lower(), own)


@functools.lru_cache(maxsize=1 << 12)
def _leads_here(name: str, own: str) -> bool:
    """Whether it is an address of an interface of this host, or the name of this host with a domain. What
    other names stand for nobody is asked: that takes time, and ssh may have its own idea of them.
    """
    from horovod.bootstrap.network import interfaces  # only here: the help is to be quick

    try:
        interfaces.packed(name)
        return any(name == each.host for each in interfaces.addresses())
    except ValueError:
        if name.partition(".")[0] != own.partition(".")[0]:
            return False
    found = _addresses(name)
    here = [each.host for each in interfaces.addresses()] if found else []
    return any(each in here or interfaces.is_loopback(each) for each in found)


def _addresses(name: str) -> list[str]:
    import socket

    try:
        return [str(target[0]) for *_, target in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []
