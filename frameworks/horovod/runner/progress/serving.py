"""Where a job can be asked how far it is: a socket of this user for ``horovodrun top``, and what --metrics
names, an address for Prometheus or a file.
"""

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
_MOST_REQUEST = 1 << 13
_PERIOD_SECONDS = 1.0
_BACKLOG = 16


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
        listener.setblocking(False)
        loop.selector.register(listener, selectors.EVENT_READ, self._on_ready)

    def close(self) -> None:
        """Nobody else is answered."""
        with contextlib.suppress(KeyError, ValueError):  # the loop is closed already
            self._loop.selector.unregister(self._listener)
        self._listener.close()

    def _on_ready(self) -> None:
        try:
            connection = endpoints.accept(self._listener)  # which turns other users away from a Unix socket
        except OSError:
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
    door = Door(loop, listener, lambda connection: connection.sendall(_encoded(view.snapshot())))
    stack.callback(door.close)


def open_for_prometheus(loop: Loop, view: View, address: tuple[str, int], stack: contextlib.ExitStack) -> str:
    """Serves the metrics there by HTTP. Returns where. Raises OSError where nobody can listen."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    stack.callback(Door(loop, listener, lambda connection: _answer_http(connection, view)).close)
    shown = f"[{host}]" if ":" in host else host or os.uname().nodename
    return f"http://{shown}:{listener.getsockname()[1]}/metrics"


class File:
    """Writes how far the job is to a file once a second, each time as a whole, and at the end."""

    def __init__(self, view: View, path: str, on_loss: Callable[[str], None]) -> None:
        """Raises OSError where it cannot be written."""
        self._view = view
        self._path = path
        self._on_loss = on_loss
        self._is_over = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._run, name="horovod-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Writes it for the last time; a disk that stands still is not waited for."""
        self._is_over.set()
        self._thread.join(_SECONDS)

    def _run(self) -> None:
        has_lost = False
        while True:
            is_over = self._is_over.wait(_PERIOD_SECONDS)
            try:
                self._write()
            except OSError as error:
                if not has_lost:
                    self._on_loss(error.strerror or str(error))
                has_lost = True
            if is_over:
                return

    def _write(self) -> None:
        from .formats import public

        new = f"{self._path}.{os.getpid()}"
        try:
            with open(new, "wb") as file:
                file.write(_encoded(public(self._view.snapshot())))
            os.replace(new, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise


def _answer_http(connection: socket.socket, view: View) -> None:
    from . import formats

    method, path = _request(connection)
    status, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", b""
    if method != "GET":
        status = "405 Method Not Allowed"
    elif path == "/metrics":
        body = formats.prometheus(view.snapshot()).encode()
    elif path == "/status":
        kind, body = "application/json", _encoded(formats.public(view.snapshot()))
    else:
        status, body = "404 Not Found", b"see /metrics, for Prometheus, and /status\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)


def _request(connection: socket.socket) -> tuple[str, str]:
    """Method and path of a request; empty ones where it is none, or comes too slowly."""
    data, deadline = b"", time.monotonic() + _SECONDS
    while b"\r\n\r\n" not in data and len(data) < _MOST_REQUEST and time.monotonic() < deadline:
        more = connection.recv(_MOST_REQUEST)
        if not more:
            break
        data += more
    words = data.partition(b"\r\n")[0].decode("ascii", errors="replace").split(" ")
    return (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")


def _encoded(snapshot: dict[str, Any]) -> bytes:
    return json.dumps(snapshot).encode() + b"\n"


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
