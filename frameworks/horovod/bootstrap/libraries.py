"""The library that carries out collectives on the CPU, where a job asks for another one than our own."""

import ctypes
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .errors import BootstrapError
from .text import shown

VARIABLE = "HOROVOD_CPU_OPERATIONS"
_MODULES = {"gloo": Path(__file__).parents[1] / "_gloo.so"}
_ABSENT = {
    "gloo": "this installation was built without Gloo. Install Gloo's headers and library (on Debian and "
    "Ubuntu: libgloo-dev), then install horovod again from its sources with HOROVOD_WITH_GLOO=1",
}
_REFUSED = {
    "mpi": "tensors do not travel by MPI in this version",
    "ccl": "oneCCL is not supported",
    "ddl": "IBM's DDL is not supported",
}


class Library(NamedTuple):
    """One of them; empty where the collectives are our own."""

    name: str = ""
    version: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


OUR_OWN = Library()


def find(name: str) -> Library:
    """A library by its name in lower case.

    Raises BootstrapError, which says how to get it, where this installation has none or it cannot be loaded.
    """
    path = _MODULES[name]
    if not path.exists():
        raise BootstrapError(_ABSENT[name])
    try:
        ask = ctypes.CDLL(str(path)).hvd_library_version
    except (OSError, AttributeError) as error:
        raise BootstrapError(f"{path.name} cannot be loaded ({error}): {_ABSENT[name]}") from error
    ask.restype = ctypes.c_char_p
    return Library(name, ask().decode(), str(path))


def wanted(rank: int, environ: Mapping[str, str]) -> Library:
    """What the environment of ``rank`` asks for.

    Raises ValueError for a library that there is no support for, and BootstrapError for one that is not
    installed.
    """
    value = environ.get(VARIABLE, "")
    name = value.lower()
    if name in ("", "host"):
        return OUR_OWN
    if name not in _MODULES:
        why = _REFUSED.get(name, "there is no such library")
        allowed = " or ".join(["host (the default)", *_MODULES])
        raise ValueError(f"rank {rank}: {VARIABLE}={shown(value)}: {why}. Set it to {allowed}, or unset it")
    try:
        return find(name)
    except BootstrapError as error:
        raise BootstrapError(
            f"rank {rank}: {VARIABLE}={shown(value)}: {error}. Or unset {VARIABLE}"
        ) from None


def own_address(links: Iterable[int], several_hosts: bool) -> str:
    """At which the other ranks reach this one: on several hosts that end of a link to another of them.
    ``links``: their descriptors.
    """
    own = map(_end_of, links) if several_hosts else ()
    return next((address for address in own if address and not _is_loopback(address)), "127.0.0.1")


def _end_of(descriptor: int) -> str:
    """Its address; empty for one that is not of IP."""
    link = socket.socket(fileno=descriptor)
    try:
        is_ip = link.family in (socket.AF_INET, socket.AF_INET6)
        return str(link.getsockname()[0]) if is_ip else ""
    finally:
        link.detach()


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
