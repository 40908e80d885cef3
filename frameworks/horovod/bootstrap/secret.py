"""The job's secret on its way from the launcher to the ranks, and in a rank.

The launcher keeps it in a file without a name (a memfd) and tells its ranks the path of that file in /proc,
which only the same user can open. So it stands in no environment, where everything that a rank starts would
find it and logs would show it; and unlike an inherited descriptor it reaches a rank through any wrapper.

A rank in a container, such as rootless podman, apptainer or bwrap, sees another /proc, or may not look into a
process outside. So the launcher gives the secret over an abstract Unix socket, too, to who connects there as
the same user: containers that share the network of the host, as ranks of one host must, share such sockets.
Where there is neither, the secret itself is in the environment, and a rank erases it there.

Where another launcher has started the ranks on several hosts, the file is one that the user has made.
"""

import contextlib
import errno
import fcntl
import hmac
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from .text import shown

SECRET_VARIABLE = "HOROVOD_SECRET_KEY"
FILE_VARIABLE = "HOROVOD_SECRET_FILE"
SOCKET_VARIABLE = "HOROVOD_SECRET_SOCKET"
SECRET_BYTES = 32  # and of every key made from it

_PR_GET_DUMPABLE = 3
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MOST_TEXT = 2 * SECRET_BYTES + 1  # in hexadecimal, and perhaps a newline
_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_MOST_ENVIRONMENT = 16 << 20
_ENV_START, _ENV_END = 50 - 3, 51 - 3  # fields of /proc/PID/stat, less those up to the program's name


class Offer(NamedTuple):
    """How ranks get the secret: variables for their environment, the descriptor to keep open, and who gives
    it over a socket.
    """

    variables: Mapping[str, str]
    descriptor: int = -1
    giver: "_Giver | None" = None

    def close(self) -> None:
        """Once no more ranks are started."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        if self.giver is not None:
            self.giver.close()


def offer(secret: bytes) -> Offer:
    """Makes the secret available to processes that this one starts, as long as it lives."""
    text, variables = secret.hex(), {}
    descriptor, path = _file_without_name(text)
    if path:
        variables[FILE_VARIABLE] = path
    try:
        giver = _Giver(text)
        variables[SOCKET_VARIABLE] = giver.address
    except (OSError, RuntimeError):  # no such sockets, or no more threads
        giver = None
    return Offer(variables or {SECRET_VARIABLE: text}, descriptor, giver)


def _file_without_name(text: str) -> tuple[int, str]:
    """A descriptor, and the path by which other processes open it; -1 and nothing where they cannot."""
    import ctypes  # late: ranks offer nothing

    descriptor = -1
    try:
        descriptor = os.memfd_create("horovod-secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o400)
        os.write(descriptor, text.encode())
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        # The kernel hides the files of a process that must not be looked into, such as one with privileges.
        visible = ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 1
        if visible and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return descriptor, path
    except (OSError, AttributeError):  # an old kernel, a sandbox without /proc
        pass
    if descriptor >= 0:
        os.close(descriptor)
    return -1, ""


class _Giver:
    """Sends a text to every process of this user that connects to ``address``, on a thread of its own."""

    def __init__(self, text: str) -> None:
        from .network import endpoints  # late: ranks that open the file need none of it

        self._text = text
        self._accept = endpoints.accept
        self._listener, self.address = endpoints.listen("unix")
        self._listener.setblocking(True)
        self._thread = threading.Thread(target=self._run, name="hvd-secret", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._listener.close()
            raise

    def close(self) -> None:
        """Ends the thread."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection = self._accept(self._listener)
            except PermissionError:  # another user's
                continue
            except OSError as error:
                if error.errno == errno.EINVAL:  # closed
                    return
                time.sleep(_PAUSE_SECONDS)  # no descriptor is free
                continue
            if connection is not None:
                with connection, contextlib.suppress(OSError):
                    connection.sendall(self._text.encode())


def of_generation(secret: bytes, generation: int) -> bytes:
    """What the ranks of one generation of an elastic job prove to each other: a process that has been in an
    earlier one only has no say in it.
    """
    return hmac.digest(secret, b"horovod generation %d" % generation, "sha256")


def take(environment: MutableMapping[str, str]) -> bytes | None:
    """The secret that ``environment`` tells or leads to, which it does no more afterwards; None without one.

    Raises ValueError, without a word of the secret, when it is not one or cannot be read.
    """
    text, path, address = remove(environment)
    if text is not None:
        return _parse(text, SECRET_VARIABLE)
    if path is None:
        return None if address is None else _parse(_ask(address), SOCKET_VARIABLE)
    try:
        text = _read(path)
    except _UnopenedError as error:
        if address is None:
            raise
        try:
            return _parse(_ask(address), SOCKET_VARIABLE)
        except ValueError as other:
            raise ValueError(f"{error}, and {other}") from None
    return _parse(text, f"{FILE_VARIABLE}={shown(path)}")


def remove(environment: MutableMapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Takes the variables out of ``environment``, where children would find them; returns their values: the
    secret, and where it is to be had, a file and a socket.
    """
    text = environment.pop(SECRET_VARIABLE, None)
    if text is not None and environment is os.environ:
        _erase(os.fsencode(text))
    return text, environment.pop(FILE_VARIABLE, None), environment.pop(SOCKET_VARIABLE, None)


class _UnopenedError(ValueError):
    """There is no such file in sight."""


def _parse(text: str, source: str) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{source} is not {SECRET_BYTES} bytes in hexadecimal")
    return secret


def _read(path: str) -> str:
    try:
        descriptor = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _UnopenedError(
            f"{FILE_VARIABLE}={shown(path)} cannot be opened: {_reason(path, error)}"
        ) from None
    try:
        found = os.fstat(descriptor)
        # Of a volume, as Kubernetes mounts secrets, root is the owner, and the group may read.
        others = 0o077 if found.st_uid == os.geteuid() else 0o027
        is_ours = found.st_uid in (os.geteuid(), 0)
        if not (stat.S_ISREG(found.st_mode) and is_ours) or found.st_mode & others:
            raise ValueError(
                f"{FILE_VARIABLE}={shown(path)} is not a file that this user alone can read (chmod 600)"
            )
        return os.read(descriptor, _MOST_TEXT).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise ValueError(f"{FILE_VARIABLE}={shown(path)} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _ask(address: str) -> str:
    """What the launcher gives to this user."""
    from .errors import BootstrapError
    from .network import endpoints

    try:
        with endpoints.connect(address, _ANSWER_SECONDS) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            return connection.recv(_MOST_TEXT, socket.MSG_WAITALL).decode("ascii", errors="replace")
    except (OSError, BootstrapError) as error:
        raise ValueError(
            f"{SOCKET_VARIABLE}={shown(address)} does not answer: {error}. A container of the rank must "
            "share the network of the host, and the user outside must be the one who started horovodrun"
        ) from None


def _reason(path: str, error: OSError) -> str:
    if path.startswith("/proc/"):
        return (
            f"{error.strerror}. Ranks run as the user who started horovodrun, see its /proc, and end when it "
            "does"
        )
    return f"{error.strerror}. It must be on {shown(os.uname().nodename)}, too, and belong to this user"


def _erase(value: bytes) -> None:
    """Overwrites the value in the environment that the process was started with, which /proc/PID/environ
    shows for ever: taking a variable out of the environment only drops the reference to it.

    The kernel checks every access, so that an environment which a program has moved is no danger.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        if not 0 < start < end <= start + _MOST_ENVIRONMENT:
            return
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            block = memory.read(end - start)
            entry = b"\0" + SECRET_VARIABLE.encode() + b"=" + value + b"\0"
            at = (b"\0" + block).find(entry)
            if at >= 0:
                memory.seek(start + at + len(entry) - len(value) - 2)
                memory.write(b"x" * len(value))
    except (OSError, ValueError, IndexError):  # a sandbox
        return
