"""The library that carries out collectives on the CPU, where a job asks for another one than our own."""

import contextlib
import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .errors import BootstrapError
from .text import shown
from .variables import flag

VARIABLE = "HOROVOD_CPU_OPERATIONS"
ONE_THREAD = "HOROVOD_MPI_THREADS_DISABLE"
_FOLDER = os.path.dirname(os.path.dirname(__file__))
_OPEN_MPI, _MPICH = "_mpi_openmpi.so", "_mpi_mpich.so"
_MODULES = {"gloo": ("_gloo.so",), "mpi": (_OPEN_MPI, _MPICH)}
_PACKAGES = {
    "_gloo.so": ("Gloo", "libgloo-dev", "HOROVOD_WITH_GLOO=1"),
    _OPEN_MPI: ("Open MPI", "libopenmpi-dev", "HOROVOD_WITH_MPI=1"),
    _MPICH: ("MPICH", "libmpich-dev", "HOROVOD_WITH_MPI=1"),
}
# What an MPI says to the processes that it starts.
_MPIS = {"OMPI_COMM_WORLD_RANK": _OPEN_MPI, "PMI_RANK": _MPICH}
_REFUSED = {"ccl": "oneCCL is not supported", "ddl": "IBM's DDL is not supported"}


class Library(NamedTuple):
    """One of them; empty where the collectives are our own."""

    name: str = ""
    version: str = ""
    path: str = ""
    has_one_thread: bool = False  # that may call it

    def __str__(self) -> str:
        name = "" if self.name == "mpi" else self.name  # an MPI's version begins with its name
        return f"{name} {self.version}{', from one thread' if self.has_one_thread else ''}".strip()


OUR_OWN = Library()


def built(name: str) -> bool:
    """Whether this installation has a module for a library."""
    return any(os.path.exists(_path(module)) for module in _MODULES[name])


def installed(name: str) -> list[Library]:
    """Those of a library's modules that can be loaded here. Loads them: two MPIs in one process are for a
    process that uses neither.
    """
    found = []
    for module in _MODULES[name]:
        with contextlib.suppress(BootstrapError):
            found.append(_load(name, module, ctypes.RTLD_LOCAL)[0])
    return found


def how_to_get(name: str) -> str:
    """In two sentences, where it is not ``built``."""
    titles, packages, switches = zip(*map(_PACKAGES.__getitem__, _MODULES[name]), strict=True)
    return _absent(" or ".join(titles), " or ".join(packages), switches[0])


def has_one_thread(environ: Mapping[str, str]) -> bool:
    """Whether MPI is to be called from one thread at a time."""
    return flag(ONE_THREAD, environ=environ)


def wanted(rank: int, environ: Mapping[str, str]) -> Library:
    """What the environment of ``rank`` asks for.

    Raises ValueError for a library that there is no support for, and BootstrapError for one that is not
    installed, or that did not start this process.
    """
    value = environ.get(VARIABLE, "")
    name = value.lower()
    if name in ("", "host"):
        return OUR_OWN
    asked = f"rank {rank}: {VARIABLE}={shown(value)}"
    if name not in _MODULES:
        why = _REFUSED.get(name, "there is no such library")
        allowed = ", ".join(["host (the default)", *_MODULES])
        raise ValueError(f"{asked}: {why}. Set it to one of {allowed}, or unset it")
    try:
        return opened(name, environ)[0]
    except BootstrapError as error:
        raise BootstrapError(f"{asked}: {error}. Or unset {VARIABLE}") from None


def opened(name: str, environ: Mapping[str, str]) -> tuple[Library, ctypes.CDLL]:
    """Loaded, not initialised. Raises BootstrapError where it cannot be."""
    # The plugins of an MPI look for its symbols among those that all see.
    mode = ctypes.RTLD_GLOBAL if name == "mpi" else ctypes.RTLD_LOCAL
    library, module = _load(name, _module(name, environ), mode)
    if name == "mpi":
        library = library._replace(has_one_thread=has_one_thread(environ))
    return library, module


def initialize(library: Library, rank: int, variable: str = VARIABLE, timeout: float = -1.0) -> None:
    """MPI, which waits for all ranks. Without a limit, if they have met before, as they do where they can
    without it; else for ``timeout`` seconds.

    Raises BootstrapError: it cannot be used by this process. ``variable`` asks for it.
    """
    if library.name != "mpi":
        return
    initialize_mpi = ctypes.CDLL(library.path).hvd_library_initialize
    initialize_mpi.restype = ctypes.c_char_p
    initialize_mpi.argtypes = (ctypes.c_int, ctypes.c_double)
    if why := initialize_mpi(int(library.has_one_thread), timeout):
        text = why.decode(errors="replace")
        raise BootstrapError(f"rank {rank}: {variable}=MPI: {text}. Or unset {variable}")


def _module(name: str, environ: Mapping[str, str]) -> str:
    """Of MPI that by which this process was started."""
    if name != "mpi":
        return _MODULES[name][0]
    if not built(name):  # said first: who installs an mpirun needs the headers, too
        raise BootstrapError(how_to_get(name))
    for variable, module in _MPIS.items():
        if variable in environ:
            return module
    raise BootstrapError(
        "this process was not started by MPI: start the job with mpirun of Open MPI or MPICH, or with "
        "horovodrun --mpi"
    )


def _load(name: str, module: str, mode: int) -> tuple[Library, ctypes.CDLL]:
    path = _path(module)
    if not os.path.exists(path):
        raise BootstrapError(_absent(*_PACKAGES[module]))
    try:
        loaded = ctypes.CDLL(path, mode=mode)
        ask = loaded.hvd_library_version
    except (OSError, AttributeError) as error:
        raise BootstrapError(f"{module} cannot be loaded ({error}): {_absent(*_PACKAGES[module])}") from error
    ask.restype = ctypes.c_char_p
    return Library(name, ask().decode(errors="replace"), path), loaded


def _path(module: str) -> str:
    return os.path.join(_FOLDER, module)


def _absent(title: str, package: str, switch: str) -> str:
    return (
        f"this installation was built without {title}. Install its headers and library (on Debian and "
        f"Ubuntu: {package}), then install horovod again from its sources with {switch}"
    )


def own_address(links: Iterable[int], several_hosts: bool) -> str:
    """At which the other ranks reach this one: on several hosts that end of a link to another of them.
    ``links``: their descriptors.
    """
    own = map(_end_of, links) if several_hosts else ()
    return next((address for address in own if address and not _is_loopback(address)), "127.0.0.1")


def _end_of(descriptor: int) -> str:
    """Its address; empty for one that is not of IP."""
    import socket  # late: only a library asks

    link = socket.socket(fileno=descriptor)
    try:
        is_ip = link.family in (socket.AF_INET, socket.AF_INET6)
        return str(link.getsockname()[0]) if is_ip else ""
    finally:
        link.detach()


def _is_loopback(address: str) -> bool:
    import ipaddress

    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
