"""The job's secret on its way from the launcher to the ranks, and in a rank.

The launcher keeps it in a file without a name (a memfd) and tells its ranks the path of that file in /proc,
which only the same user can open. So it stands in no environment, where everything that a rank starts would
find it and logs would show it; and unlike an inherited descriptor it reaches a rank through any wrapper.
Where such a file cannot be had, the secret itself is in the environment, and a rank erases it there.

Where another launcher has started the ranks on several hosts, the file is one that the user has made.
"""

import fcntl
import hmac
import os
import stat
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from .text import shown

SECRET_VARIABLE = "HOROVOD_SECRET_KEY"
FILE_VARIABLE = "HOROVOD_SECRET_FILE"
SECRET_BYTES = 32  # and of every key made from it

_PR_GET_DUMPABLE = 3
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MOST_TEXT = 2 * SECRET_BYTES + 1  # in hexadecimal, and perhaps a newline
_MOST_ENVIRONMENT = 16 << 20
_ENV_START, _ENV_END = 50 - 3, 51 - 3  # fields of /proc/PID/stat, less those up to the program's name


class Offer(NamedTuple):
    """How ranks get the secret: variables for their environment, and the descriptor to keep open."""

    variables: Mapping[str, str]
    descriptor: int = -1

    def close(self) -> None:
        """Once no more ranks are started."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def offer(secret: bytes) -> Offer:
    """Makes the secret available to processes that this one starts, as long as it lives."""
    import ctypes  # late: ranks offer nothing

    descriptor = -1
    try:
        descriptor = os.memfd_create("horovod-secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o400)
        os.write(descriptor, secret.hex().encode())
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        # The kernel hides the files of a process that must not be looked into, such as one with privileges.
        visible = ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 1
        if visible and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return Offer({FILE_VARIABLE: path}, descriptor)
    except (OSError, AttributeError):  # an old kernel, a sandbox without /proc
        pass
    if descriptor >= 0:
        os.close(descriptor)
    return Offer({SECRET_VARIABLE: secret.hex()})


def of_generation(secret: bytes, generation: int) -> bytes:
    """What the ranks of one generation of an elastic job prove to each other: a process that has been in an
    earlier one only has no say in it.
    """
    return hmac.digest(secret, b"horovod generation %d" % generation, "sha256")


def take(environment: MutableMapping[str, str]) -> bytes | None:
    """The secret that ``environment`` tells or leads to, which it does no more afterwards; None without one.

    Raises ValueError, without a word of the secret, when it is not one or cannot be read.
    """
    text, path = remove(environment)
    if text is not None:
        return _parse(text, SECRET_VARIABLE)
    return None if path is None else _parse(_read(path), f"{FILE_VARIABLE}={shown(path)}")


def remove(environment: MutableMapping[str, str]) -> tuple[str | None, str | None]:
    """Takes the variables out of ``environment``, where children would find them; returns their values."""
    text, path = environment.pop(SECRET_VARIABLE, None), environment.pop(FILE_VARIABLE, None)
    if text is not None and environment is os.environ:
        _erase(os.fsencode(text))
    return text, path


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
        raise ValueError(f"{FILE_VARIABLE}={shown(path)} cannot be opened: {_reason(path, error)}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ValueError(
                f"{FILE_VARIABLE}={shown(path)} is not a file that this user alone can read (chmod 600)"
            )
        return os.read(descriptor, _MOST_TEXT).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise ValueError(f"{FILE_VARIABLE}={shown(path)} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


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
