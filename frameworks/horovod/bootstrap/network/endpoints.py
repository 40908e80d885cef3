"""Stream endpoints: abstract Unix sockets ("unix:@name") within a host, TCP ("tcp:10.0.0.1:4000",
"tcp:[fd00::1]:4000", "tcp:[fe80::1%eth0]:4000") on loopback or between hosts.

An abstract socket has no name in the file system: nothing to guess, to attack by links, or to clean up. Its
network namespace is open to other users, so both ends check the peer's uid by SO_PEERCRED.
"""

import atexit
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Sequence

from ..errors import AnotherUserError, BootstrapError, PortTakenError
from ..text import shown
from .interfaces import PORTS_VARIABLE, packed

LOOPBACK = "127.0.0.1"
_Target = str | tuple[str, int] | tuple[str, int, int, int]
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 1024
_LONGEST_NAME = 107  # of an abstract socket, for the kernel
_MOST_CLAIMS = 64
# Of ports, oldest first; a process that starts job after job gives up those of its first ones.
_claims: dict[int, contextlib.ExitStack] = {}
_ANY_FAMILY = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
_PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def listen(
    kind: str, host: str = LOOPBACK, name: str | None = None, ports: range | None = None
) -> tuple[socket.socket, str]:
    """A non-blocking listening socket and the address to dial it at. Kind "unix": of that name, or a random
    one; "tcp": at one address of this host, and one of ``ports`` or any.
    """
    if kind == "unix":
        name = name or f"horovod-{os.urandom(16).hex()}"
        return _listening(socket.AF_UNIX, "\0" + name), f"unix:@{name}"
    if kind == "tcp":
        family = _family(host)
        listener = _listening_at_one_of(ports, host) if ports else _listening(family, _target(host, 0))
        return listener, joined(host, listener.getsockname()[1])
    raise ValueError(f"unknown kind of endpoint {kind!r}")


def listen_at(hosts: Sequence[str], ports: range | None = None) -> list[tuple[socket.socket, str]]:
    """Listening sockets and their addresses, at one TCP port of each of ``hosts`` where that can be: not at
    an address that the system has not made sure of yet. Raises what the last one met where none can be.
    """
    listeners = []
    problem: Exception = OSError(errno.EADDRNOTAVAIL, "this host has no address")
    for host in hosts:
        try:
            listeners.append(listen("tcp", host, ports=ports))
        except (OSError, BootstrapError) as error:
            problem = error
    if not listeners:
        raise problem
    return listeners


def accept(listener: socket.socket) -> socket.socket | None:
    """The next connection, non-blocking; None when it has gone already. Raises PermissionError, whose text is
    its origin, for another user's, which is closed.
    """
    try:
        connection, _ = listener.accept()
    except (BlockingIOError, ConnectionError):
        return None
    connection.setblocking(False)
    if not _same_user(connection):
        whence = origin(connection)
        connection.close()
        raise PermissionError(whence)
    return connection


def origin(connection: socket.socket) -> str:
    """Where a connection comes from, for a log."""
    if connection.family == socket.AF_UNIX:
        pid, uid, _ = _credentials(connection)
        return f"process {pid} of user {uid}"
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return "an unknown address"
    return f"{host}:{port}"


def own_host(connection: socket.socket) -> str:
    """The address of this host by which ``connection`` goes: the route to its other end has chosen it."""
    if connection.family == socket.AF_UNIX:
        return LOOPBACK
    host, _port, *rest = connection.getsockname()
    return f"{host}%{socket.if_indextoname(rest[1])}" if rest and rest[1] else str(host)


def joined(host: str, port: int) -> str:
    """The address of a TCP port."""
    return f"tcp:[{host}]:{port}" if _family(host) == socket.AF_INET6 else f"tcp:{host}:{port}"


def split(address: str) -> tuple[str, int] | None:
    """Host and port of a TCP address; None: it is none."""
    kind, _, rest = address.partition(":")
    host, _, port = rest.rpartition(":")
    host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if kind == "tcp" and _is_numeric(host) and 0 < _port(port) < 65536:
        return host, int(port)
    return None


def free_port(ports: range | None = None, holds: bool = False) -> int:
    """A TCP port that is free now on the loopback interface, one of ``ports`` or any, for a program that will
    listen at it. Nobody else who asks here is given it, as long as this process lives and other ports are
    left.

    Args:
        ports: those that may be used; None: any.
        holds: whether the system, too, gives it to nobody who asks for any. Then a program can listen at it
            that lets others share it (SO_REUSEADDR), as this library does where it is told a port.
    """
    while True:
        for _ in range(_MOST_CLAIMS if ports is None else 8 * len(ports)):
            listener, _address = listen("tcp", ports=ports)
            with listener:
                port = int(listener.getsockname()[1])
            claim = _claim(port, holds)
            if claim is not None:
                if len(_claims) == _MOST_CLAIMS:
                    _claims.pop(next(iter(_claims))).close()
                _claims[port] = claim
                return port
        own = [port for port in _claims if port in ports] if ports else []
        if not own:
            raise PortTakenError(
                "the TCP ports that are free on the loopback interface belong to other jobs, which do not "
                "listen at them yet, or are taken at other addresses of this host"
            )
        _claims.pop(own[0]).close()


@atexit.register
def _release_claims() -> None:
    """So that the interpreter, at its end, warns of no socket that was left open."""
    while _claims:
        _claims.popitem()[1].close()


def _claim(port: int, holds: bool) -> contextlib.ExitStack | None:
    """A name that one process of this network can have, and the port at all addresses; None: another one has
    it.
    """
    try:
        with contextlib.ExitStack() as stack:
            name = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
            name.bind(f"\0horovod-port-{port}")
            if holds:
                _hold(stack.enter_context(socket.socket(_ANY_FAMILY, socket.SOCK_STREAM)), port)
            return stack.pop_all()
    except OSError:
        return None


def _hold(holder: socket.socket, port: int) -> None:
    """Binds and never listens: the system keeps the port then, and those who share it can listen."""
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if holder.family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("", port))


def port_range() -> str:
    """The ports that the kernel gives to whoever asks for any."""
    try:
        with open(_PORT_RANGE, encoding="ascii") as file:
            first, last = file.read().split()
    except (OSError, ValueError):
        return "the local ports"
    return f"{first} to {last} (net.ipv4.ip_local_port_range)"


def start_connect(address: str) -> socket.socket:
    """A non-blocking socket on its way to ``address``: writable when the outcome is known
    (``finish_connect``).

    Raises OSError when refused at once, also while the queue of a Unix listener is full.
    """
    family, target = _parse(address)
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        if family == socket.AF_UNIX:
            connection.connect(target)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _begin(connection, target)
    except BaseException:
        connection.close()
        raise
    return connection


def finish_connect(connection: socket.socket) -> None:
    """Raises OSError when the connection failed (EACCES: a firewall forbids it), and AnotherUserError when
    another user listens there.
    """
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    if not _same_user(connection):
        raise AnotherUserError(f"{origin(connection)}, which is another user, listens at this job's address")


def listener(address: str) -> tuple[int, int] | None:
    """Process and user that listen at the address of a Unix socket; None where that cannot be found out."""
    family, target = _parse(address)
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.setblocking(False)
        try:
            connection.connect(target)
        except OSError:  # nobody, or more knock there than are answered
            return None
        return _credentials(connection)[:2]


def connect(address: str, timeout: float) -> socket.socket:
    """A connected blocking socket."""
    family, target = _parse(address)
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout)
        connection.connect(target)
        finish_connect(connection)
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def jittered(seconds: float) -> float:
    """A random pause, from half of ``seconds`` on: those who failed together do not try again together."""
    return seconds * (0.5 + int.from_bytes(os.urandom(2), "big") / (1 << 17))


def _begin(connection: socket.socket, target: _Target) -> None:
    try:
        connection.connect(target)
    except BlockingIOError:
        pass


def _listening_at_one_of(ports: range, host: str) -> socket.socket:
    """From a random one on, so that ranks which start together do not try the same ones."""
    start = int.from_bytes(os.urandom(4), "big") % len(ports)
    for port in (*ports[start:], *ports[:start]):
        try:
            # The links of jobs that run or have just ended keep their port, and do not keep others from it.
            return _listening(_family(host), _target(host, port), shares_port=True)
        except PortTakenError:
            continue
        except PermissionError as error:
            raise BootstrapError(f"{PORTS_VARIABLE}: no right to listen at port {port}: {error}") from None
    raise PortTakenError(
        f"{PORTS_VARIABLE}={ports[0]}-{ports[-1]}: all of these ports are taken on {host}. Give more: a job "
        "needs one for each of its ranks on a host, and one for its launcher"
    )


def _listening(family: socket.AddressFamily, target: _Target, shares_port: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if shares_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE and family != socket.AF_UNIX:
            raise PortTakenError(
                f"no TCP port is free on {target[0]}: all of {port_range()} are taken"
            ) from None
        raise
    return listener


def _parse(address: str) -> tuple[socket.AddressFamily, _Target]:
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest[:1] == "@" and rest.isascii() and 1 < len(rest) <= _LONGEST_NAME:
        return socket.AF_UNIX, "\0" + rest[1:]
    if found := split(address):
        return _family(found[0]), _target(*found)
    raise BootstrapError(
        f"'{shown(address)}' is not an address of this version (unix:@name, or tcp:host:port with the host "
        "as numbers)"
    )


def _target(host: str, port: int) -> _Target:
    """As the system takes it. Raises OSError when this host has not the interface of the address."""
    if _family(host) == socket.AF_INET:
        return host, port
    address, _, interface = host.partition("%")
    return address, port, 0, socket.if_nametoindex(interface) if interface else 0


def _is_numeric(host: str) -> bool:
    try:
        return bool(packed(host))
    except ValueError:
        return False


def _port(text: str) -> int:
    """0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _same_user(connection: socket.socket) -> bool:
    if connection.family != socket.AF_UNIX:
        return True
    return _credentials(connection)[1] == os.geteuid()


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the other end of a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return pid, uid, gid
