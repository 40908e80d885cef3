"""Local stream endpoints: abstract Unix sockets ("unix:@name") and loopback TCP ("tcp:127.0.0.1:port").

An abstract socket has no name in the file system: nothing to guess, to attack by links, or to clean up. Its
network namespace is open to other users, so both ends check the peer's uid by SO_PEERCRED.
"""

import os
import secrets
import socket
import struct

from .errors import BootstrapError

_LOOPBACK = "127.0.0.1"
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 1024


def listen(kind: str) -> tuple[socket.socket, str]:
    """A non-blocking listening socket of kind "unix" or "tcp", and the address to dial it at."""
    if kind == "unix":
        name = f"horovod-{secrets.token_hex(16)}"
        return _listening(socket.AF_UNIX, "\0" + name), f"unix:@{name}"
    if kind == "tcp":
        listener = _listening(socket.AF_INET, (_LOOPBACK, 0))
        return listener, f"tcp:{_LOOPBACK}:{listener.getsockname()[1]}"
    raise ValueError(f"unknown kind of endpoint {kind!r}")


def accept(listener: socket.socket) -> socket.socket | None:
    """The next connection, non-blocking; None when it was dropped (another user's, or gone already)."""
    try:
        connection, _ = listener.accept()
    except (BlockingIOError, ConnectionError):
        return None
    connection.setblocking(False)
    if not _same_user(connection):
        connection.close()
        return None
    return connection


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
    """Raises OSError when the connection failed, or when another user listens there."""
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    if not _same_user(connection):
        raise PermissionError("another user listens at the address of this job")


def connect(address: str, timeout: float) -> socket.socket:
    """A connected blocking socket."""
    family, target = _parse(address)
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout)
        connection.connect(target)
        finish_connect(connection)
        if family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _begin(connection: socket.socket, target: str | tuple[str, int]) -> None:
    try:
        connection.connect(target)
    except BlockingIOError:
        pass


def _listening(family: socket.AddressFamily, target: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(target)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _parse(address: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest.startswith("@") and len(rest) > 1:
        return socket.AF_UNIX, "\0" + rest[1:]
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host == _LOOPBACK and port.isdecimal() and 0 < int(port) < 65536:
        return socket.AF_INET, (host, int(port))
    raise BootstrapError(
        f"{address!r} is not an address of this version (unix:@name or tcp:{_LOOPBACK}:port)"
    )


def _same_user(connection: socket.socket) -> bool:
    if connection.family != socket.AF_UNIX:
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.geteuid())
