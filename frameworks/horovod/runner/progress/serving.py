"""The socket by which ``horovodrun top`` of this user asks a job how far it is."""

import contextlib
import json
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

from horovod.bootstrap.network import endpoints

from ..nodes.loop import Loop
from .view import View

_AT_ONCE = 8  # who asks; others come again
_SECONDS = 2.0  # for one who asks
_BACKLOG = 16
_PAUSE = 1.0  # seconds without a look at who asks, when no descriptor is free


def folder() -> str:
    """Where the sockets of this user's jobs are. Raises OSError where it is not the user's own."""
    path = os.path.join("/tmp", f"horovod-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder that this user alone can use")
    return path


class Door:
    """Answers whoever connects to ``listener``, by ``answer`` on a thread of its own."""

    def __init__(self, loop: Loop, listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        self._loop = loop
        self._listener = listener
        self._answer = answer
        self._room = threading.Semaphore(_AT_ONCE)
        self._resumes = float("inf")
        listener.setblocking(False)
        loop.attendants.append(self)
        self._listen()

    def tend(self, now: float) -> float:
        """Listens again after a pause. Returns when that is."""
        if now >= self._resumes:
            self._resumes = float("inf")
            self._listen()
        return self._resumes

    def close(self) -> None:
        """Nobody else is answered."""
        self._loop.attendants.remove(self)
        with contextlib.suppress(KeyError, ValueError):  # the loop is closed already
            self._loop.selector.unregister(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        self._loop.selector.register(self._listener, selectors.EVENT_READ, self._on_ready)

    def _on_ready(self) -> None:
        try:
            connection = endpoints.accept(self._listener)  # which turns other users away from a Unix socket
        except PermissionError:
            return
        except OSError:  # no descriptor is free: the job needs them more
            self._loop.selector.unregister(self._listener)
            self._resumes = time.monotonic() + _PAUSE
            return
        if connection is None:
            return
        if self._room.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the system has no thread for it
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                return
            self._room.release()
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_SECONDS)
                self._answer(connection)
        finally:
            self._room.release()


def open_for_top(loop: Loop, view: View, stack: contextlib.ExitStack) -> None:
    """Lets ``horovodrun top`` of this user see the job. Raises OSError where it cannot."""
    path = os.path.join(folder(), str(os.getpid()))
    with contextlib.suppress(FileNotFoundError):  # of a process of that number that was killed
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    stack.callback(listener.close)
    listener.bind(path)
    stack.callback(_remove, path)
    listener.listen(_BACKLOG)
    door = Door(loop, listener, lambda connection: connection.sendall(encoded(view.snapshot())))
    stack.callback(door.close)


def encoded(snapshot: dict[str, Any]) -> bytes:
    """As JSON."""
    return json.dumps(snapshot).encode() + b"\n"


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
