"""The lock of a folder of checkpoints: one process of one job writes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time

from horovod.bootstrap.text import shown
from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError
from horovod.elastic.checkpoint.folder import Folder
from horovod.elastic.checkpoint.layout import LOCK

_LONGEST = 4096
_PAUSE_SECONDS = 0.1
_BUSY = (errno.EACCES, errno.EAGAIN)
_held: set[tuple[int, int]] = set()  # by this process; the system's locks are between processes
_guard = threading.Lock()


class LockedError(CheckpointError):
    """Another process holds the lock."""


class FolderLock:
    """Held until ``release``, or the end of the process. ``token`` is readable by those who see the folder.

    It is a POSIX lock, which works over NFS, too, and which forked children do not inherit. The system drops
    it when any descriptor of the file is closed in this process, so nothing else here opens the file.
    """

    def __init__(self, descriptor: int, identity: tuple[int, int], token: str) -> None:
        self._descriptor = descriptor
        self._identity = identity
        self.token = token

    def release(self) -> None:
        """Lets others write."""
        with _guard:
            _held.discard(self._identity)
        os.close(self._descriptor)


def acquire(folder: Folder, patience: float) -> FolderLock:
    """The lock; waits ``patience`` seconds for a holder that is about to end.

    Raises:
        LockedError: another process holds it.
        OSError: the folder cannot be written to.
    """
    deadline = time.monotonic() + patience
    while True:
        lock = _try(folder)
        if lock is not None:
            return lock
        if time.monotonic() >= deadline:
            raise LockedError(
                f"The folder of checkpoints {shown(folder.path)} is in use by another job "
                f"({_holder(folder)}): end that job, or give this one another folder"
            )
        time.sleep(_PAUSE_SECONDS)


def token_in(folder: Folder) -> str:
    """That of who holds the lock; "" when there is none. Not for the process that holds it."""
    return str(_told(folder).get("token", ""))


def _try(folder: Folder) -> FolderLock | None:
    if _is_ours(folder):
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(LOCK, flags, 0o600, dir_fd=folder.descriptor)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        token = secrets.token_hex(8)
        holder = {"token": token, "host": socket.gethostname(), "pid": os.getpid()}
        text = json.dumps(holder).encode()
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
    except OSError as error:
        os.close(descriptor)
        if error.errno in _BUSY:
            return None
        raise
    found = os.fstat(descriptor)
    identity = (found.st_dev, found.st_ino)
    with _guard:
        _held.add(identity)
    return FolderLock(descriptor, identity, token)


def _holder(folder: Folder) -> str:
    told = {} if _is_ours(folder) else _told(folder)
    if not told:
        return "of this process" if _is_ours(folder) else "which has not said who it is"
    return f"process {shown(str(told.get('pid')))} on {shown(str(told.get('host')))}"


def _is_ours(folder: Folder) -> bool:
    try:
        found = os.stat(LOCK, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in _held


def _told(folder: Folder) -> dict[str, object]:
    try:
        told = json.loads(folder.read(LOCK, _LONGEST))
    except (DamagedError, OSError, RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
